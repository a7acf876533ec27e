"""Ten airplanes."""

# ruff: noqa: E501 - one toy, one line
import dataclasses

import numpy as np

from capszoo.data.synthnorb.mesh import Toy, varied


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


def model_airplane(instance: int, rng: np.random.Generator) -> Toy:
    """Model the airplane of this `instance`, standing on its wheels or floats."""
    a = varied(AIRPLANES[instance], rng)
    toy, half, z = Toy(), a.length / 2, a.girth + a.wheels + (0.25 if a.floats else 0.08)
    blunt = 0.7 if a.propellers else 0.25
    stations = np.array([-half, -0.45 * half, 0.4 * half, half])
    toy.tube(
        np.stack([stations, 0 * stations, z + np.array([0.3, 0.05, 0, -0.1]) * a.girth], 1),
        a.girth * np.array([0.35, 0.9, 1.0, blunt]),
    )
    if a.canopy:
        toy.ball(
            (0.35 * half, 0, z + 0.8 * a.girth),
            (2.4 * a.canopy, 0.8 * a.canopy, 1.3 * a.canopy),
            rng.uniform(-6, 3),
        )
    for k in range(a.wings):
        height = z + (a.wing_height + (2.6 * k - 1.0) * (a.wings > 1)) * a.girth
        _wing(toy, a.wing_at, height, a.span / 2, a.chord, a.tip, a.sweep, a.dihedral)
    if a.wings > 1:
        low, high = z - a.girth, z + 1.6 * a.girth
        for x in (a.wing_at - 0.1, a.wing_at + 0.12):
            toy.tube([(x, 0.6 * a.span / 2, low), (x, 0.6 * a.span / 2, high)], 0.018, mirror=True)
    _tail(toy, a, half, z)
    for y in a.propellers:
        nose = (
            np.array([half + 0.02, 0, z - 0.1 * a.girth])
            if y == 0
            else np.array([a.wing_at + 0.32, y, z + a.wing_height * a.girth])
        )
        blade = _around_x(rng.uniform(0, 180)) * 0.27
        twin = y != 0
        toy.tube([nose - [0.45, 0, 0], nose], [0.06, 0.08 if twin else 0.1], mirror=twin)
        toy.hull([nose + blade, nose - blade], 0.03, mirror=twin)
        toy.ball(nose, (0.09, 0.05, 0.05), mirror=twin)
    for y in a.jets:
        x, height = a.wing_at + 0.15 - 0.2 * a.sweep, z + (a.wing_height - 0.75) * a.girth
        toy.disc((x, y, height), 0.1, 0.42, axis="x", edge=0.04, mirror=True)
    if a.rear_jets:
        toy.disc((-0.55 * half, 1.5 * a.girth, z + 0.5 * a.girth), 0.1, 0.5, axis="x", edge=0.04, mirror=True)
    if a.missiles:
        tip = (a.wing_at - a.sweep - 0.05, a.span / 2, z)
        toy.tube([tip, np.add(tip, (0.45, 0, 0))], 0.035, mirror=True)
    _landing_gear(toy, a, half, z)
    return toy


def _wing(toy: Toy, x, z, reach, chord, tip, sweep, dihedral) -> None:
    root = [(x + chord / 2, 0, z), (x - chord / 2, 0, z)]
    middle, end = x - sweep, tip * chord / 2
    tips = [(middle + end, reach, z + dihedral * reach), (middle - end, reach, z + dihedral * reach)]
    toy.hull(root + tips, [0.04, 0.03, 0.025, 0.02], mirror=True)


def _tail(toy: Toy, a: Airplane, half: float, z: float) -> None:
    top = z + 0.5 * a.girth + a.fin
    for y in np.linspace(-1.1, 1.1, a.fins) * a.girth if a.fins > 1 else (0.0,):
        lean = 1.5 * y
        toy.hull(
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
        _wing(toy, -half + 0.1, height, a.tail_span / 2, 0.26, 0.6, 0.12 + 0.3 * a.sweep, 0.02)


def _landing_gear(toy: Toy, a: Airplane, half: float, z: float) -> None:
    if a.floats:
        toy.tube([(-0.5, 0.35, 0.12), (0.3, 0.35, 0.09), (0.75, 0.35, 0.14)], [0.06, 0.1, 0.05], mirror=True)
        for x in (-0.2, 0.3):
            toy.tube([(x, 0.35, 0.1), (x, 0.08, z)], 0.022, mirror=True)
        return
    toy.disc((a.wing_at, 0.28, a.wheels), a.wheels, 0.07, mirror=True)
    toy.tube([(a.wing_at, 0.28, a.wheels), (a.wing_at, 0.12, z)], 0.025, mirror=True)
    third = -0.85 * half if a.propellers else 0.75 * half
    toy.disc((third, 0, 0.6 * a.wheels), 0.6 * a.wheels, 0.05)
    toy.tube([(third, 0, 0.6 * a.wheels), (third, 0, z)], 0.022)


def _around_x(angle: float) -> np.ndarray:
    return np.array([0.0, np.cos(np.radians(angle)), np.sin(np.radians(angle))])
