"""Ten trucks."""

# ruff: noqa: E501 - one toy, one line
import dataclasses

import numpy as np

from capszoo.data.synthnorb.mesh import Toy, at, varied


@dataclasses.dataclass(frozen=True)
class Truck:
    """Proportions of a truck about 2.4 long, `axles` behind the cab and one under it."""

    length: float = 2.4
    width: float = 0.44  # half
    wheel: float = 0.2
    axles: int = 1
    bonnet: float = 0.0
    cab: float = 0.5  # length
    cab_height: float = 0.75
    slope: float = 0.08
    load: str = "box"
    load_height: float = 0.8
    chassis: float = 0.14


TRUCKS = (
    Truck(load="bed", bonnet=0.5, cab=0.55, cab_height=0.62, slope=0.2, load_height=0.25, length=2.1, wheel=0.19),  # pickup
    Truck(load="tip", axles=2, load_height=0.6),  # tipper
    Truck(load="tank", axles=2, length=2.3, load_height=0.5),  # milk truck
    Truck(load="tip", axles=1, bonnet=0.4, load_height=0.5, length=2.2, wheel=0.25),  # old tipper
    Truck(load="box", load_height=0.95, length=2.3),  # delivery truck
    Truck(load="mixer", axles=2, length=2.4, load_height=0.5),  # concrete mixer
    Truck(load="bed", bonnet=0.45, cab=0.5, cab_height=0.6, load_height=0.28, length=2.1, wheel=0.34, chassis=0.3),  # monster truck
    Truck(load="crane", axles=2, length=2.4, load_height=0.35),  # crane
    Truck(load="ladder", axles=2, length=2.6, load_height=0.5, cab_height=0.7),  # fire engine
    Truck(load="tank", axles=3, length=2.8, bonnet=0.35, load_height=0.6),  # tanker
)  # fmt: skip


def model_truck(instance: int, rng: np.random.Generator) -> Toy:
    """Model the truck of this `instance`."""
    t = varied(TRUCKS[instance], rng)
    toy, front = Toy(), t.length / 2
    floor = t.wheel + t.chassis
    toy.box((-front, -0.6 * t.width, t.wheel), (front, 0.6 * t.width, floor + 0.03))
    cab_front = front - t.bonnet
    toy.box(
        (cab_front - t.cab, -t.width, 0.8 * t.wheel + 0.05),
        (cab_front, t.width, floor + 0.4 * t.cab_height),
        0.04,
    )
    top = (t.slope, 0.02, 0.05)
    toy.box((cab_front - t.cab, -t.width, floor), (cab_front, t.width, floor + t.cab_height), 0.04, top)
    if t.bonnet:
        toy.box(
            (cab_front - 0.1, -0.85 * t.width, t.wheel),
            (front, 0.85 * t.width, floor + 0.42 * t.cab_height),
            0.05,
            (0.05, 0, 0.04),
        )
        toy.box(
            (cab_front, 0.6 * t.width, t.wheel),
            (front - 0.05, t.width, 2.1 * t.wheel),
            0.05,
            (0.08, 0, 0),
            mirror=True,
        )
    toy.box((front - 0.02, -t.width, 0.75 * t.wheel), (front + 0.07, t.width, 1.3 * t.wheel), 0.03)
    rear = cab_front - t.cab - 0.06
    _load(toy, t, -front, rear, floor, rng)
    axles = [min(front - 0.9 * t.wheel - 0.05, cab_front - 0.3 * t.cab + 0.3 * t.bonnet)]
    axles += [-front + 0.35 + k * 2.15 * t.wheel for k in range(t.axles)]
    for x in axles:
        toy.disc((x, t.width - 0.05, t.wheel), t.wheel, 0.2, edge=0.03, mirror=True)
    return toy


def _load(toy: Toy, t: Truck, back: float, front: float, floor: float, rng: np.random.Generator) -> None:
    """Model what stands behind the cab, between `back` and `front`."""
    w, h, middle = t.width, t.load_height, (back + front) / 2
    if t.load == "box":
        toy.box((back, -w - 0.03, floor), (front, w + 0.03, floor + h), 0.03)
    if t.load in ("bed", "tip"):
        wall, flare = 0.035, 0.0 if t.load == "bed" else 0.1
        rise = 0.0 if t.load == "bed" else rng.uniform(0.0, 0.5)  # a raised body shows its inside
        for y in (-1, 1):
            side = [
                (back, y * w, 0),
                (front, y * w, 0),
                (back, y * (w + flare), h),
                (front, y * (w + flare), h),
            ]
            toy.hull(_raised(side, back, floor, rise), wall)
        for x in (back, front):
            end = [(x, -w, 0), (x, w, 0), (x, -w - flare, h), (x, w + flare, h)]
            toy.hull(_raised(end, back, floor, rise), wall)
        toy.hull(_raised([(x, y, 0.02) for x in (back, front) for y in (-w, w)], back, floor, rise), wall)
    if t.load == "tank":
        radius = 0.55 * h + 0.08
        toy.ball((middle, 0, floor + radius), ((front - back) / 2, radius, radius))
        toy.disc((middle, 0, floor + radius), radius, 0.82 * (front - back), axis="x", edge=0.08)
        for x in np.linspace(back + 0.3, front - 0.3, 3):
            toy.disc((x, 0, floor + 2 * radius), 0.11, 0.12, axis="z")
        toy.box((back, -w, floor - 0.05), (front, w, floor + 0.06))
    if t.load == "ladder":
        toy.box((back, -w, floor - 0.05), (front, w, floor + h), 0.03)
        end = np.array([back - 0.35, 0, floor + h + rng.uniform(0.1, 0.45)])
        foot = np.array([front + 0.1, 0, floor + h + 0.12])
        for y in (-0.13, 0.13):
            toy.tube([at(foot, 0, y, 0), at(end, 0, y, 0)], 0.03)
        for s in np.linspace(0, 1, 7):
            rung = foot + s * (end - foot)
            toy.tube([rung - [0, 0.13, 0], at(rung, 0, 0.13, 0)], 0.02)
        toy.disc(foot - [0.15, 0, 0.08], 0.2, 0.14, axis="z")
    if t.load == "crane":
        toy.box((back, -w, floor - 0.05), (front, w, floor + 0.12))
        toy.box((middle - 0.3, -0.3, floor + 0.1), (middle + 0.3, 0.3, floor + 0.15 + h), 0.05)
        swing = np.radians(rng.uniform(-35, 35))
        foot = np.array([middle - 0.1, 0.0, floor + h])
        tip = foot + np.array([1.6 * np.cos(swing), 1.6 * np.sin(swing), 0.75])
        toy.tube([foot, tip], [0.1, 0.06])
        toy.tube([tip, tip - [0, 0, 0.55]], 0.018)
        toy.ball(tip - [0, 0, 0.6], (0.08, 0.05, 0.08))
    if t.load == "mixer":
        drum = np.array(
            [[back + 0.02, 0, floor + 0.75], [middle, 0, floor + 0.5], [front - 0.15, 0, floor + 0.36]]
        )
        toy.tube(drum, [0.17, 0.42 * (0.6 + h), 0.24])
        toy.box((back, -w, floor - 0.05), (front, w, floor + 0.08))
        toy.box((back, -0.2, floor), (back + 0.15, 0.2, floor + 0.55))


def _raised(points, hinge: float, floor: float, angle: float) -> np.ndarray:
    """Return the points (z above the floor) turned about the axle at x = `hinge`, so that the front rises."""
    x, y, z = np.transpose(points)
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([hinge + c * (x - hinge) - s * z, y, floor + s * (x - hinge) + c * z], 1)
