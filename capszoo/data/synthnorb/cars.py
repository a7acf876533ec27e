"""Ten cars."""

# ruff: noqa: E501 - one toy, one line
import dataclasses

import numpy as np

from capszoo.data.synthnorb.mesh import Toy, varied


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
    Car(length=1.8, round_body=True, nose=0.2, boot=0.2, cabin=0.32, cabin_back=0.03, cabin_front=0.75, screen=0.25, back_screen=0.35, fenders=0.05),  # beetle
    Car(length=2.2, belt=0.25, nose=0.14, boot=0.24, cabin=0.2, cabin_back=0.12, cabin_front=0.62, screen=0.4, back_screen=0.4, spoiler=0.14),  # sports car
    Car(length=2.2, cabin_back=0.02, cabin_front=0.68, back_screen=0.08, rack=True),  # estate
    Car(length=1.7, cabin_back=0.02, cabin_front=0.76, screen=0.22, back_screen=0.12, cabin=0.34),  # small hatchback
    Car(length=2.2, cabin=0.0, belt=0.34, nose=0.26, boot=0.32, screen=0.2, fenders=0.03),  # open tourer
    Car(length=2.3, width=0.2, wheel=0.24, belt=0.18, nose=0.02, boot=0.22, cabin=0.14, cabin_back=0.25, cabin_front=0.5, screen=0.1, open_wheels=True, spoiler=0.2),  # racing car
    Car(length=2.0, wheel=0.21, width=0.36, belt=0.3, nose=0.28, boot=0.24, cabin=0.42, cabin_back=0.1, cabin_front=0.52, screen=0.06, back_screen=0.05, fenders=0.12, spare=True),  # vintage car
    Car(length=2.1, belt=0.3, nose=0.2, boot=0.33, cabin=0.24, cabin_back=0.08, cabin_front=0.62, screen=0.35, back_screen=0.45, spoiler=0.05),  # fastback
    Car(length=1.9, wheel=0.24, belt=0.38, nose=0.38, boot=0.38, cabin=0.34, cabin_back=0.02, cabin_front=0.62, screen=0.08, back_screen=0.03, spare=True, fenders=0.04),  # off-road car
)  # fmt: skip


def model_car(instance: int, rng: np.random.Generator) -> Toy:
    """Model the car of this `instance`."""
    c = varied(CARS[instance], rng)
    toy, half, z = Toy(), c.length / 2, 0.9 * c.wheel
    along = lambda s: (s - 0.5) * c.length  # noqa: E731 - a position between tail and nose
    axle_front, axle_back = along(0.82), along(0.19)
    front, back = along(c.cabin_front), along(c.cabin_back)
    w, belt, r = c.width, c.wheel + c.belt, 0.12 if c.round_body else 0.06
    sill = [(x, y, z) for x in (-half + r, half - r) for y in (r - w, w - r)]
    edge = [(half - r, c.wheel + c.nose), (front, belt), (back, belt), (r - half, c.wheel + c.boot)]
    shoulder = [(x, y, height - r) for x, height in edge for y in (r - 0.94 * w, 0.94 * w - r)]
    toy.hull(sill + shoulder, r)
    if c.round_body:
        _vault(toy, c, front, back, belt)
    else:
        (_cabin if c.cabin else _cockpit)(toy, c, front, back, belt)
    for x in (axle_front, axle_back):
        y = w + 0.2 if c.open_wheels else w - 0.04
        toy.disc(
            (x, y, c.wheel),
            c.wheel * (1.12 if c.open_wheels else 1),
            0.2 if c.open_wheels else 0.14,
            edge=0.03,
            mirror=True,
        )
        if c.open_wheels:
            toy.tube([(x, -y, c.wheel), (x, y, c.wheel)], 0.03)
        if c.fenders:
            toy.ball(
                (x, w - 0.03, c.wheel + 0.07), (c.wheel * 1.45, 0.06 + c.fenders, c.wheel + 0.07), mirror=True
            )
    if c.spoiler:
        height, reach = c.wheel + c.boot + c.spoiler, w + 0.2 * c.open_wheels
        toy.hull(
            [
                (0.08 - half, reach, height),
                (0.08 - half, -reach, height),
                (0.26 - half, reach, height - 0.03),
                (0.26 - half, -reach, height - 0.03),
            ],
            0.02,
        )
        toy.hull([(0.15 - half, 0.6 * w, c.wheel + 0.1), (0.15 - half, 0.6 * w, height)], 0.03, mirror=True)
    if c.rack:
        toy.box(
            (back + 0.15, -0.5 * w, belt + c.cabin),
            (front - c.screen - 0.1, 0.5 * w, belt + c.cabin + rng.uniform(0.06, 0.16)),
        )
    if c.spare:
        toy.disc((-half - 0.02, 0, c.wheel + 0.3), c.wheel, 0.1, axis="x")
    toy.box((half - 0.06, -w, 0.8 * c.wheel), (half + 0.04, w, 1.4 * c.wheel), 0.03)
    toy.box((-half - 0.04, -w, 0.8 * c.wheel), (0.06 - half, w, 1.4 * c.wheel), 0.03)
    return toy


def _vault(toy: Toy, c: Car, front: float, back: float, belt: float) -> None:
    """Model a closed roof without edges."""
    r, roof = 0.12, belt + c.cabin - 0.12
    arch = [
        (front - r, belt - r),
        (front - c.screen - r, roof),
        (back + c.back_screen + r, roof),
        (back + r, belt - r),
    ]
    toy.hull([(x, y, z) for x, z in arch for y in (r - 0.84 * c.width, 0.84 * c.width - r)], r)


def _cabin(toy: Toy, c: Car, front: float, back: float, belt: float) -> None:
    """Model a roof on six pillars, with empty windows, as in a die-cast car."""
    r, roof = 0.035, belt + c.cabin - 0.035
    low, high = 0.9 * c.width - r, 0.74 * c.width - r
    corners = [(back, back + c.back_screen), (front, front - c.screen)]
    middle = np.mean(corners)
    for foot, top in (*corners, (middle, middle)):
        toy.tube([(foot, low, belt - r), (top, high, roof)], r, mirror=True)
    toy.hull([(top, y, roof) for _, top in corners for y in (-high, high)], r)
    _seats(toy, c, front - c.screen - 0.3, back + c.back_screen, belt - 0.08)


def _cockpit(toy: Toy, c: Car, front: float, back: float, belt: float) -> None:
    w = 0.8 * c.width
    toy.hull(
        [
            (front, w, belt),
            (front, -w, belt),
            (front - c.screen, w, belt + 0.25),
            (front - c.screen, -w, belt + 0.25),
        ],
        0.025,
    )
    _seats(toy, c, front - 0.65, back + 0.1, belt)


def _seats(toy: Toy, c: Car, front: float, back: float, belt: float) -> None:
    for x in (front, back):
        toy.box((x - 0.08, 0.06, belt - 0.1), (x + 0.08, 0.8 * c.width, belt + 0.17), 0.05, mirror=True)
