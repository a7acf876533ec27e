"""Ten four-legged animals."""

# ruff: noqa: E501 - one toy, one line
import dataclasses

import numpy as np

from capszoo.data.synthnorb.mesh import Toy, at, varied


@dataclasses.dataclass(frozen=True)
class Animal:
    """Proportions of a four-legged animal; the trunk is `length` = 1 unless said otherwise, angles in degrees."""

    length: float = 1.0
    girth: float = 0.22  # radius of the trunk
    slim: float = 0.85  # width of the trunk relative to its height
    leg: float = 0.55
    leg_radius: float = 0.06
    neck: float = 0.35
    neck_angle: float = 45.0
    neck_radius: float = 0.12
    head: float = 0.13
    snout: float = 0.24
    ear: float = 0.08
    ear_spread: float = 0.3  # 0 upright, 1 sideways
    tail: float = 0.4
    tail_angle: float = -55.0
    tail_radius: float = 0.03
    horn: float = 0.0
    horn_spread: float = 0.6
    nose_horn: float = 0.0
    trunk: float = 0.0
    mane: float = 0.0
    humps: int = 0
    plates: int = 0


ANIMALS = (
    Animal(girth=0.27, leg=0.48, neck=0.22, neck_angle=15, neck_radius=0.17, head=0.15, horn=0.22),  # bull
    Animal(girth=0.33, leg=0.24, leg_radius=0.1, neck=0.12, neck_angle=-5, neck_radius=0.24, head=0.2, snout=0.3, ear=0.05, tail=0.15),  # hippo
    Animal(length=0.8, girth=0.17, leg=0.55, leg_radius=0.045, neck=0.25, head=0.11, snout=0.2, ear=0.13, ear_spread=0.1, tail=0.45, tail_angle=35),  # dog
    Animal(girth=0.23, leg=0.75, neck=0.6, neck_angle=40, neck_radius=0.09, head=0.11, ear=0.06, humps=2, tail=0.3),  # camel
    Animal(length=0.8, girth=0.2, leg=0.8, leg_radius=0.05, neck=0.95, neck_angle=65, neck_radius=0.09, head=0.1, horn=0.08, horn_spread=0.2),  # giraffe
    Animal(girth=0.2, leg=0.72, leg_radius=0.05, neck=0.5, neck_angle=52, snout=0.28, mane=0.06, tail=0.55, tail_radius=0.06),  # horse
    Animal(girth=0.36, leg=0.5, leg_radius=0.12, neck=0.15, neck_angle=25, neck_radius=0.2, head=0.24, snout=0.1, ear=0.3, ear_spread=1.0, tail=0.25, trunk=0.6),  # elephant
    Animal(girth=0.21, leg=0.45, leg_radius=0.07, neck=0.22, neck_angle=35, head=0.16, snout=0.16, mane=0.27, tail=0.6, tail_angle=-25),  # lion
    Animal(length=1.1, girth=0.26, leg=0.35, leg_radius=0.09, neck=0.8, neck_angle=35, neck_radius=0.13, head=0.1, ear=0, tail=1.0, tail_angle=-12, tail_radius=0.14, plates=5),  # dinosaur
    Animal(girth=0.31, leg=0.35, leg_radius=0.09, neck=0.2, neck_angle=5, neck_radius=0.2, head=0.18, snout=0.34, nose_horn=0.25, tail=0.2),  # rhinoceros
)  # fmt: skip


def model_animal(instance: int, rng: np.random.Generator) -> Toy:
    """Model the animal of this `instance`; `rng` varies its proportions by up to 12 % and its posture."""
    a = varied(ANIMALS[instance], rng)
    toy, half, back = Toy(), a.length / 2, a.leg + a.girth
    bulge = rng.uniform(0.85, 1.1, 2)
    width = a.girth * a.slim
    toy.ball(
        (0.15 * a.length, 0, back),
        (0.42 * a.length, width * bulge[0], a.girth * bulge[0]),
        rng.uniform(-4, 8),
    )
    toy.ball(
        (-0.15 * a.length, 0, back),
        (0.42 * a.length, width * bulge[1], a.girth * bulge[1]),
        rng.uniform(-8, 4),
    )
    for x in (half - 0.15, 0.15 - half):
        for side in (-1, 1):
            y, stride = side * (width - 0.6 * a.leg_radius), rng.uniform(-0.13, 0.13)
            knee = (x + 0.3 * stride + np.sign(x) * -0.03, y, 0.5 * a.leg)
            toy.tube(
                [(x, y, a.leg + 0.3 * a.girth), knee, (x + stride, y, a.leg_radius)],
                np.array([1.7, 1.05, 0.9]) * a.leg_radius,
            )
            toy.ball(
                (x + stride + 0.3 * a.leg_radius, y, 0.04), (1.4 * a.leg_radius, 1.2 * a.leg_radius, 0.05)
            )
    for k in range(a.humps):
        x = (0.17 - 0.34 * k) if a.humps > 1 else 0.0
        toy.ball((x, 0, back + a.girth), (0.16, 0.1, 0.2))
    for k in range(a.plates):
        x = half - k * 1.3 * a.length / a.plates
        toy.hull([(x - 0.08, 0, back), (x + 0.08, 0, back), (x - 0.03, 0, back + a.girth + 0.16)], 0.02)
    tail = _direction(180 - a.tail_angle) * a.tail
    root = np.array([-half - 0.02, 0, back + 0.4 * a.girth])
    sway = np.array([0, rng.uniform(-0.25, 0.25) * a.tail, 0])
    toy.tube(
        [root, root + 0.5 * tail, root + tail + sway],
        [a.tail_radius * 1.2, a.tail_radius, 0.7 * a.tail_radius],
    )
    _head(toy, a, np.array([half - 0.08, 0, back + 0.3 * a.girth]), rng)
    return toy


def _head(toy: Toy, a: Animal, root: np.ndarray, rng: np.random.Generator) -> None:
    turn = np.array([0, rng.uniform(-0.2, 0.2), 0])
    head = root + (_direction(a.neck_angle) + turn) * (a.neck + a.neck_radius)
    nod = rng.uniform(-35, 5)
    ahead = _direction(nod) + turn
    toy.tube([root, head], [1.4 * a.neck_radius, 0.9 * a.neck_radius])
    toy.ball(head, (1.15 * a.head, 0.85 * a.head, a.head), nod)
    muzzle = head + ahead * (0.5 * a.head + a.snout)
    toy.tube([head, muzzle], [0.8 * a.head, 0.5 * a.head])
    for side in (-1, 1):
        out = np.array([-0.15, side * a.ear_spread, 1.0 - a.ear_spread])
        base = head + np.array([-0.3 * a.head, side * 0.6 * a.head, 0.6 * a.head])
        if a.ear:
            flap = base + np.array([-0.5 * a.ear, 0, -0.8 * a.ear * a.ear_spread])
            toy.hull([base, base + out * a.ear * 1.3, flap + out * a.ear], 0.02)
        if a.horn:
            tip = np.array([0.3, side * a.horn_spread, 1.0]) * a.horn
            toy.tube([base, base + tip * [0.2, 1.3, 0.4], base + tip], [0.035, 0.03, 0.012])
    if a.mane > 0.15:
        toy.ball(head - ahead * 0.6 * a.head - [0, 0, 0.08], (0.6 * a.mane, 0.85 * a.mane, a.mane))
    elif a.mane:
        toy.tube([at(root, -0.1, 0, 0.12), at(head, -0.1, 0, 0.08)], a.mane)
    if a.nose_horn:
        toy.tube([muzzle, muzzle + np.array([0.1, 0, 1.0]) * a.nose_horn], [0.06, 0.015])
    if a.trunk:
        curl = rng.uniform(-0.1, 0.5)
        toy.tube(
            [muzzle, at(muzzle, 0.15, 0, -0.5 * a.trunk), at(muzzle, 0.15 + curl, 0, -0.8 * a.trunk)],
            [0.11, 0.07, 0.05],
        )
        toy.tube([at(muzzle, 0, 0.1, 0), at(muzzle, 0.28, 0.13, -0.08)], [0.03, 0.012], mirror=True)


def _direction(elevation: float) -> np.ndarray:
    angle = np.radians(elevation)
    return np.array([np.cos(angle), 0.0, np.sin(angle)])
