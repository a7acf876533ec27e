"""The toys with engines: ten airplanes, ten trucks and ten cars, one plan per instance."""

import dataclasses

import numpy as np

from capszoo.data.synthnorb.clay import Clay, varied


@dataclasses.dataclass(frozen=True)
class Airplane:
    """Proportions of an airplane whose fuselage is about 2 long."""

    length: float = 2.0
    girth: float = 0.16
    span: float = 1.9
    chord: float = 0.42
    tip: float = 0.7  # chord at the tip relative to the root
    sweep: float = 0.1  # how far the tip lies behind the root
    dihedral: float = 0.05
    wing_at: float = 0.1  # forward of the middle
    wing_height: float = 0.0  # in girths: -1 under, 1 on top of the fuselage
    wings: int = 1
    tail_span: float = 0.75
    tail_on_fin: bool = False
    fin: float = 0.36
    fins: int = 1
    propellers: tuple[float, ...] = ()  # sideways positions; 0 is the nose
    jets: tuple[float, ...] = ()  # sideways positions under the wing
    rear_jets: bool = False
    canopy: float = 0.1
    wheels: float = 0.1
    floats: bool = False
    missiles: bool = False


AIRPLANES = (
    Airplane(span=1.4, chord=0.9, tip=0.2, sweep=0.65, wing_at=0.0, tail_span=0.0, fin=0.42, missiles=True),  # delta
    Airplane(span=2.2, chord=0.38, tip=0.9, sweep=0.02, wing_height=1.0, propellers=(0,), wheels=0.17, girth=0.17),  # high wing
    Airplane(length=2.3, span=2.2, sweep=0.45, tip=0.4, jets=(0.45,), canopy=0, girth=0.18, wing_height=-0.7),  # airliner
    Airplane(length=1.6, span=1.7, chord=0.36, tip=1.0, sweep=0.0, wings=2, propellers=(0,), wheels=0.16, girth=0.15),  # biplane
    Airplane(length=1.9, span=1.5, sweep=0.5, tip=0.3, chord=0.6, fins=2, missiles=True, tail_span=0.8),  # twin-fin fighter
    Airplane(length=1.8, span=2.0, chord=0.48, tip=0.5, sweep=0.08, propellers=(0,), wing_height=-0.7),  # fighter of the forties
    Airplane(length=2.2, span=2.8, chord=0.44, tip=0.5, sweep=0.1, propellers=(0.45, 0.85), canopy=0.12, girth=0.19, wing_height=0.4),  # bomber
    Airplane(length=2.1, span=1.8, tip=0.4, sweep=0.35, rear_jets=True, tail_on_fin=True, wing_height=-0.7, canopy=0.07),  # business jet
    Airplane(length=1.7, span=2.2, chord=0.4, tip=0.9, sweep=0.0, wing_height=1.0, propellers=(0,), floats=True),  # seaplane
    Airplane(length=2.0, span=1.3, sweep=0.55, tip=0.35, chord=0.55, girth=0.19, fin=0.48, tail_span=0.8),  # early jet
)  # fmt: skip


def model_airplane(instance: int, rng: np.random.Generator) -> Clay:
    """Model the airplane of this `instance`, standing on its wheels or floats."""
    a = varied(AIRPLANES[instance], rng)
    clay, half, z = Clay(), a.length / 2, a.girth + a.wheels + (0.25 if a.floats else 0.08)
    blunt = 0.7 if a.propellers else 0.25
    stations = np.array([-half, -0.45 * half, 0.4 * half, half])
    clay.tube(
        np.stack([stations, 0 * stations, z + np.array([0.3, 0.05, 0, -0.1]) * a.girth], 1),
        a.girth * np.array([0.35, 0.9, 1.0, blunt]),
    )
    if a.canopy:
        clay.ball(
            (0.35 * half, 0, z + 0.8 * a.girth),
            (2.4 * a.canopy, 0.8 * a.canopy, 1.3 * a.canopy),
            rng.uniform(-6, 3),
        )
    for k in range(a.wings):
        height = z + (a.wing_height + (2.6 * k - 1.0) * (a.wings > 1)) * a.girth
        _wing(clay, a.wing_at, height, a.span / 2, a.chord, a.tip, a.sweep, a.dihedral)
    if a.wings > 1:
        low, high = z - a.girth, z + 1.6 * a.girth
        for x in (a.wing_at - 0.1, a.wing_at + 0.12):
            clay.tube([(x, 0.6 * a.span / 2, low), (x, 0.6 * a.span / 2, high)], 0.018, mirror=True)
    _tail(clay, a, half, z)
    for y in a.propellers:
        nose = (
            np.array([half + 0.02, 0, z - 0.1 * a.girth])
            if y == 0
            else np.array([a.wing_at + 0.32, y, z + a.wing_height * a.girth])
        )
        blade = _around_x(rng.uniform(0, 180)) * 0.27
        twin = y != 0
        clay.tube([nose - [0.45, 0, 0], nose], [0.06, 0.08 if twin else 0.1], mirror=twin)
        clay.hull([nose + blade, nose - blade], 0.03, mirror=twin)
        clay.ball(nose, (0.09, 0.05, 0.05), mirror=twin)
    for y in a.jets:
        x, height = a.wing_at + 0.15 - 0.2 * a.sweep, z + (a.wing_height - 0.75) * a.girth
        clay.disc((x, y, height), 0.1, 0.42, axis="x", edge=0.04, mirror=True)
    if a.rear_jets:
        clay.disc(
            (-0.55 * half, 1.5 * a.girth, z + 0.5 * a.girth), 0.1, 0.5, axis="x", edge=0.04, mirror=True
        )
    if a.missiles:
        tip = (a.wing_at - a.sweep - 0.05, a.span / 2, z)
        clay.tube([tip, np.add(tip, (0.45, 0, 0))], 0.035, mirror=True)
    _landing_gear(clay, a, half, z)
    return clay


def _wing(clay: Clay, at, z, reach, chord, tip, sweep, dihedral) -> None:
    root = [(at + chord / 2, 0, z), (at - chord / 2, 0, z)]
    middle, end = at - sweep, tip * chord / 2
    tips = [(middle + end, reach, z + dihedral * reach), (middle - end, reach, z + dihedral * reach)]
    clay.hull(root + tips, [0.04, 0.03, 0.025, 0.02], mirror=True)


def _tail(clay: Clay, a: Airplane, half: float, z: float) -> None:
    top = z + 0.5 * a.girth + a.fin
    for y in np.linspace(-1.1, 1.1, a.fins) * a.girth if a.fins > 1 else (0.0,):
        lean = 1.5 * y
        clay.hull(
            [
                (-half + 0.35, y, z + 0.3 * a.girth),
                (-half, y, z),
                (-half - 0.02, lean, top),
                (-half - 0.16, lean, top),
            ],
            0.025,
        )
    if a.tail_span:
        height = top if a.tail_on_fin else z + 0.35 * a.girth
        _wing(clay, -half + 0.1, height, a.tail_span / 2, 0.26, 0.6, 0.12 + 0.3 * a.sweep, 0.02)


def _landing_gear(clay: Clay, a: Airplane, half: float, z: float) -> None:
    if a.floats:
        clay.tube([(-0.5, 0.35, 0.12), (0.3, 0.35, 0.09), (0.75, 0.35, 0.14)], [0.06, 0.1, 0.05], mirror=True)
        for x in (-0.2, 0.3):
            clay.tube([(x, 0.35, 0.1), (x, 0.08, z)], 0.022, mirror=True)
        return
    clay.disc((a.wing_at, 0.28, a.wheels), a.wheels, 0.07, mirror=True)
    clay.tube([(a.wing_at, 0.28, a.wheels), (a.wing_at, 0.12, z)], 0.025, mirror=True)
    third = -0.85 * half if a.propellers else 0.75 * half
    clay.disc((third, 0, 0.6 * a.wheels), 0.6 * a.wheels, 0.05)
    clay.tube([(third, 0, 0.6 * a.wheels), (third, 0, z)], 0.022)


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
    Truck(load="tank", axles=3, length=2.8, bonnet=0.35, load_height=0.6),  # tanker
    Truck(load="ladder", axles=2, length=2.6, load_height=0.5, cab_height=0.7),  # fire engine
    Truck(load="box", load_height=0.95, length=2.3),  # delivery truck
    Truck(load="crane", axles=2, length=2.4, load_height=0.35),  # crane
    Truck(load="bed", bonnet=0.45, cab=0.5, cab_height=0.6, load_height=0.28, length=2.1, wheel=0.34, chassis=0.3),  # monster truck
    Truck(load="mixer", axles=2, length=2.4, load_height=0.5),  # concrete mixer
    Truck(load="tip", axles=1, bonnet=0.4, load_height=0.5, length=2.2, wheel=0.25),  # old tipper
    Truck(load="tank", axles=2, length=2.3, load_height=0.5),  # milk truck
)  # fmt: skip


def model_truck(instance: int, rng: np.random.Generator) -> Clay:
    """Model the truck of this `instance`."""
    t = varied(TRUCKS[instance], rng)
    clay, front = Clay(), t.length / 2
    floor = t.wheel + t.chassis
    clay.box((-front, -0.6 * t.width, t.wheel), (front, 0.6 * t.width, floor + 0.03))
    cab_front = front - t.bonnet
    clay.box(
        (cab_front - t.cab, -t.width, 0.8 * t.wheel + 0.05),
        (cab_front, t.width, floor + 0.4 * t.cab_height),
        0.04,
    )
    top = (t.slope, 0.02, 0.05)
    clay.box((cab_front - t.cab, -t.width, floor), (cab_front, t.width, floor + t.cab_height), 0.04, top)
    if t.bonnet:
        clay.box(
            (cab_front - 0.1, -0.85 * t.width, t.wheel),
            (front, 0.85 * t.width, floor + 0.42 * t.cab_height),
            0.05,
            (0.05, 0, 0.04),
        )
        clay.box(
            (cab_front, 0.6 * t.width, t.wheel),
            (front - 0.05, t.width, 2.1 * t.wheel),
            0.05,
            (0.08, 0, 0),
            mirror=True,
        )
    clay.box((front - 0.02, -t.width, 0.75 * t.wheel), (front + 0.07, t.width, 1.3 * t.wheel), 0.03)
    rear = cab_front - t.cab - 0.06
    _load(clay, t, -front, rear, floor, rng)
    axles = [min(front - 0.9 * t.wheel - 0.05, cab_front - 0.3 * t.cab + 0.3 * t.bonnet)]
    axles += [-front + 0.35 + k * 2.15 * t.wheel for k in range(t.axles)]
    for x in axles:
        clay.disc((x, t.width - 0.05, t.wheel), t.wheel, 0.2, edge=0.03, mirror=True)
    return clay


def _load(clay: Clay, t: Truck, back: float, front: float, floor: float, rng: np.random.Generator) -> None:
    """Model what stands behind the cab, between `back` and `front`."""
    w, h, middle = t.width, t.load_height, (back + front) / 2
    if t.load == "box":
        clay.box((back, -w - 0.03, floor), (front, w + 0.03, floor + h), 0.03)
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
            clay.hull(_raised(side, back, floor, rise), wall)
        for x in (back, front):
            end = [(x, -w, 0), (x, w, 0), (x, -w - flare, h), (x, w + flare, h)]
            clay.hull(_raised(end, back, floor, rise), wall)
        clay.hull(_raised([(x, y, 0.02) for x in (back, front) for y in (-w, w)], back, floor, rise), wall)
    if t.load == "tank":
        radius = 0.55 * h + 0.08
        clay.ball((middle, 0, floor + radius), ((front - back) / 2, radius, radius))
        clay.disc((middle, 0, floor + radius), radius, 0.82 * (front - back), axis="x", edge=0.08)
        for x in np.linspace(back + 0.3, front - 0.3, 3):
            clay.disc((x, 0, floor + 2 * radius), 0.11, 0.12, axis="z")
        clay.box((back, -w, floor - 0.05), (front, w, floor + 0.06))
    if t.load == "ladder":
        clay.box((back, -w, floor - 0.05), (front, w, floor + h), 0.03)
        end = np.array([back - 0.35, 0, floor + h + rng.uniform(0.1, 0.45)])
        foot = np.array([front + 0.1, 0, floor + h + 0.12])
        for y in (-0.13, 0.13):
            clay.tube([foot + [0, y, 0], end + [0, y, 0]], 0.03)
        for s in np.linspace(0, 1, 7):
            rung = foot + s * (end - foot)
            clay.tube([rung - [0, 0.13, 0], rung + [0, 0.13, 0]], 0.02)
        clay.disc(foot - [0.15, 0, 0.08], 0.2, 0.14, axis="z")
    if t.load == "crane":
        clay.box((back, -w, floor - 0.05), (front, w, floor + 0.12))
        clay.box((middle - 0.3, -0.3, floor + 0.1), (middle + 0.3, 0.3, floor + 0.15 + h), 0.05)
        swing = np.radians(rng.uniform(-35, 35))
        foot = np.array([middle - 0.1, 0.0, floor + h])
        tip = foot + np.array([1.6 * np.cos(swing), 1.6 * np.sin(swing), 0.75])
        clay.tube([foot, tip], [0.1, 0.06])
        clay.tube([tip, tip - [0, 0, 0.55]], 0.018)
        clay.ball(tip - [0, 0, 0.6], (0.08, 0.05, 0.08))
    if t.load == "mixer":
        drum = np.array(
            [[back + 0.02, 0, floor + 0.75], [middle, 0, floor + 0.5], [front - 0.15, 0, floor + 0.36]]
        )
        clay.tube(drum, [0.17, 0.42 * (0.6 + h), 0.24])
        clay.box((back, -w, floor - 0.05), (front, w, floor + 0.08))
        clay.box((back, -0.2, floor), (back + 0.15, 0.2, floor + 0.55))


def _raised(points, hinge: float, floor: float, angle: float) -> np.ndarray:
    """Return the points (z above the floor) turned about the axle at x = `hinge`, so that the front rises."""
    x, y, z = np.transpose(points)
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([hinge + c * (x - hinge) - s * z, y, floor + s * (x - hinge) + c * z], 1)


@dataclasses.dataclass(frozen=True)
class Car:
    """Proportions of a car about 2 long; `cabin_*` run from the tail (0) to the nose (1)."""

    length: float = 2.1
    width: float = 0.42  # half
    wheel: float = 0.17
    belt: float = 0.4  # height of the body's upper edge above the axles
    nose: float = 0.3  # height of the bonnet's front edge above the axles
    boot: float = 0.34  # height of the tail's edge above the axles
    cabin: float = 0.3  # height above the belt; 0 is an open car
    cabin_back: float = 0.15
    cabin_front: float = 0.68
    screen: float = 0.25  # slope of the windscreen
    back_screen: float = 0.2
    fenders: float = 0.0
    round_body: bool = False
    open_wheels: bool = False
    spoiler: float = 0.0
    rack: bool = False
    spare: bool = False


CARS = (
    Car(),  # saloon
    Car(length=1.8, round_body=True, cabin=0.34, cabin_back=0.12, cabin_front=0.75, screen=0.3, back_screen=0.4, fenders=0.1),  # beetle
    Car(length=2.2, belt=0.25, nose=0.14, boot=0.24, cabin=0.2, cabin_back=0.12, cabin_front=0.62, screen=0.4, back_screen=0.4, spoiler=0.14),  # sports car
    Car(length=1.9, wheel=0.24, belt=0.38, nose=0.38, boot=0.38, cabin=0.34, cabin_back=0.02, cabin_front=0.62, screen=0.08, back_screen=0.03, spare=True, fenders=0.04),  # off-road car
    Car(length=2.2, cabin_back=0.02, cabin_front=0.68, back_screen=0.08, rack=True),  # estate
    Car(length=2.2, cabin=0.0, belt=0.34, nose=0.26, boot=0.32, screen=0.2, fenders=0.03),  # open tourer
    Car(length=2.3, width=0.2, wheel=0.24, belt=0.18, nose=0.02, boot=0.22, cabin=0.14, cabin_back=0.25, cabin_front=0.5, screen=0.1, open_wheels=True, spoiler=0.2),  # racing car
    Car(length=2.0, wheel=0.21, width=0.36, belt=0.3, nose=0.28, boot=0.24, cabin=0.42, cabin_back=0.1, cabin_front=0.52, screen=0.06, back_screen=0.05, fenders=0.12, spare=True),  # vintage car
    Car(length=2.1, belt=0.3, nose=0.2, boot=0.33, cabin=0.24, cabin_back=0.08, cabin_front=0.62, screen=0.35, back_screen=0.45, spoiler=0.05),  # fastback
    Car(length=1.7, cabin_back=0.02, cabin_front=0.76, screen=0.22, back_screen=0.12, cabin=0.34),  # small hatchback
)  # fmt: skip


def model_car(instance: int, rng: np.random.Generator) -> Clay:
    """Model the car of this `instance`."""
    c = varied(CARS[instance], rng)
    clay, half, z = Clay(), c.length / 2, 0.9 * c.wheel
    along = lambda s: (s - 0.5) * c.length  # noqa: E731 - a position between tail and nose
    axle_front, axle_back = along(0.82), along(0.19)
    front, back = along(c.cabin_front), along(c.cabin_back)
    w, belt, r = c.width, c.wheel + c.belt, 0.06
    sill = [(x, y, z) for x in (-half + r, half - r) for y in (r - w, w - r)]
    edge = [(half - r, c.wheel + c.nose), (front, belt), (back, belt), (r - half, c.wheel + c.boot)]
    if c.round_body:
        clay.ball((0.05, 0, z + 0.1), (half, 0.9 * w, c.belt + 0.05))
    else:
        clay.hull(sill + [(x, y, height - r) for x, height in edge for y in (r - 0.94 * w, 0.94 * w - r)], r)
    if c.cabin:
        low = [(x, y, belt - r) for x in (back, front) for y in (r - 0.92 * w, 0.92 * w - r)]
        roof = [(back + c.back_screen, belt + c.cabin - r), (front - c.screen, belt + c.cabin - r)]
        clay.hull(low + [(x, y, height) for x, height in roof for y in (r - 0.74 * w, 0.74 * w - r)], r)
    else:
        _cockpit(clay, c, front, back, belt)
    for x in (axle_front, axle_back):
        y = w + 0.2 if c.open_wheels else w - 0.04
        clay.disc(
            (x, y, c.wheel),
            c.wheel * (1.12 if c.open_wheels else 1),
            0.2 if c.open_wheels else 0.14,
            edge=0.03,
            mirror=True,
        )
        if c.open_wheels:
            clay.tube([(x, -y, c.wheel), (x, y, c.wheel)], 0.03)
        if c.fenders:
            clay.ball(
                (x, w - 0.03, c.wheel + 0.07), (c.wheel * 1.45, 0.06 + c.fenders, c.wheel + 0.07), mirror=True
            )
    if c.spoiler:
        height, reach = c.wheel + c.boot + c.spoiler, w + 0.2 * c.open_wheels
        clay.hull(
            [
                (0.08 - half, reach, height),
                (0.08 - half, -reach, height),
                (0.26 - half, reach, height - 0.03),
                (0.26 - half, -reach, height - 0.03),
            ],
            0.02,
        )
        clay.hull([(0.15 - half, 0.6 * w, c.wheel + 0.1), (0.15 - half, 0.6 * w, height)], 0.03, mirror=True)
    if c.rack:
        clay.box(
            (back + 0.15, -0.5 * w, belt + c.cabin),
            (front - c.screen - 0.1, 0.5 * w, belt + c.cabin + rng.uniform(0.06, 0.16)),
        )
    if c.spare:
        clay.disc((-half - 0.02, 0, c.wheel + 0.3), c.wheel, 0.1, axis="x")
    clay.box((half - 0.06, -w, 0.8 * c.wheel), (half + 0.04, w, 1.4 * c.wheel), 0.03)
    clay.box((-half - 0.04, -w, 0.8 * c.wheel), (0.06 - half, w, 1.4 * c.wheel), 0.03)
    return clay


def _cockpit(clay: Clay, c: Car, front: float, back: float, belt: float) -> None:
    w = 0.8 * c.width
    clay.hull(
        [
            (front, w, belt),
            (front, -w, belt),
            (front - c.screen, w, belt + 0.25),
            (front - c.screen, -w, belt + 0.25),
        ],
        0.025,
    )
    for x in (front - 0.65, back + 0.1):
        clay.box((x - 0.08, 0.06, belt - 0.1), (x + 0.08, w, belt + 0.17), 0.05, mirror=True)


def _around_x(angle: float) -> np.ndarray:
    return np.array([0.0, np.cos(np.radians(angle)), np.sin(np.radians(angle))])
