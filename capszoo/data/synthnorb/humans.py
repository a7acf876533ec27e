"""Ten human figures and what they hold."""

import dataclasses

import numpy as np

from capszoo.data.synthnorb.mesh import Toy, at, varied


@dataclasses.dataclass(frozen=True)
class Human:
    """A figure of height about 1.8; hands and feet are (forward, outward or left, up) from shoulder and hip."""

    left_hand: tuple[float, float, float] = (0.25, 0.15, -0.45)
    right_hand: tuple[float, float, float] = (0.25, 0.15, -0.45)
    stance: float = 0.16  # sideways distance of a foot from the middle
    stride: float = 0.15  # how far one foot is ahead
    crouch: float = 0.0
    lean: float = 0.0
    build: float = 1.0  # thickness of trunk and limbs
    hat: str = ""
    holds: str = ""
    wears: str = ""
    stand: bool = True


HUMANS = (
    Human(
        (0.4, 0.0, 0.0), (0.35, 0.3, 0.25), stance=0.3, hat="helmet", holds="sword shield", stride=0.3
    ),  # knight
    Human((0.25, 0.1, 0.5), (0.3, 0.1, 0.5), stance=0.25, holds="ball", stand=False),  # ball player
    Human(
        (0.55, 0.1, 0.0), (-0.25, 0.35, 0.1), stance=0.25, stride=0.4, holds="bow", wears="quiver"
    ),  # archer
    Human(
        (0.15, 0.35, -0.45), (0.5, 0.1, -0.1), hat="brim", holds="pistol", build=1.05, wears="coat"
    ),  # cowboy
    Human(
        (0.4, -0.15, -0.15), (0.15, 0.0, -0.3), hat="helmet", holds="rifle", wears="pack", stride=0.25
    ),  # soldier
    Human((0.2, 0.35, -0.4), (0.2, 0.15, -0.2), build=1.35, hat="crest", holds="club", stance=0.28),  # giant
    Human(
        (0.35, 0.1, 0.05), (-0.2, 0.3, 0.35), stance=0.2, stride=0.55, holds="spear", lean=0.15
    ),  # spear thrower
    Human((0.3, 0.1, -0.3), (0.3, 0.1, -0.1), holds="flag", wears="coat", hat="brim"),  # standard bearer
    Human(
        (0.45, -0.1, -0.05), (0.2, 0.0, -0.15), crouch=0.35, stride=0.4, hat="helmet", holds="rifle"
    ),  # kneeling
    Human(
        (0.35, 0.0, -0.3), (0.35, 0.0, -0.35), build=1.3, holds="crate", stance=0.22, wears="pack", hat="brim"
    ),  # porter
)


def model_human(instance: int, rng: np.random.Generator) -> Toy:
    """Model the figure of this `instance`; `rng` varies its proportions by up to 12 % and its posture."""
    h = varied(HUMANS[instance], rng)
    toy, thick = Toy(), 0.075 * h.build
    hip_z, torso = 0.92 - h.crouch, rng.uniform(0.5, 0.6)
    hip = np.array([0.0, 0.0, hip_z])
    chest = at(hip, h.lean, 0, torso)
    ahead = rng.choice([-1, 1])
    for side in (-1, 1):
        joint = at(hip, 0, side * 0.11 * h.build, 0)
        foot = np.array([side * ahead * h.stride / 2, side * h.stance, 0.06])
        knee = at((joint + foot) / 2, 0.06 + 0.6 * h.crouch, 0, 0.02)
        toy.tube([joint, knee, foot], np.array([1.3, 1.0, 0.8]) * thick)
        toy.ball(at(foot, 0.06, 0, 0), (0.15, 0.07, 0.06))
    toy.hull([at(hip, 0, 0.09, 0), at(hip, 0, -0.09, 0)], 1.6 * thick)
    shoulder = 0.2 * h.build
    toy.hull(
        [hip, at(chest, 0, shoulder - 0.07, -0.05), at(chest, 0, 0.07 - shoulder, -0.05)],
        [1.5 * thick, 1.4 * thick, 1.4 * thick],
    )
    hands = []
    for side, hand in ((1, h.left_hand), (-1, h.right_hand)):
        joint = at(chest, 0, side * shoulder, 0)
        hand = joint + np.array(hand) * [1, side, 1] + rng.normal(0, 0.04, 3)
        elbow = (joint + hand) / 2 + np.array([-0.06, side * 0.1, -0.1])
        toy.tube([joint, elbow, hand], np.array([0.95, 0.8, 0.65]) * thick)
        toy.ball(hand, (0.065, 0.065, 0.065))
        hands.append(hand)
    head = at(chest, 0.03 + 0.2 * h.lean, 0, 0.26)
    toy.tube([chest, head], [0.09, 0.07])
    toy.ball(head, (0.125, 0.105, 0.15))
    _dress(toy, h, head, chest, hip, rng)
    _give(toy, h, *hands)
    if h.stand:
        toy.disc((0, 0, 0.0), rng.uniform(0.38, 0.48), 0.06, axis="z")
    return toy


def _dress(toy: Toy, h: Human, head, chest, hip, rng: np.random.Generator) -> None:
    if h.hat == "helmet":
        toy.ball(at(head, -0.01, 0, 0.06), (0.17, 0.15, 0.13))
    if h.hat == "crest":
        toy.hull([at(head, 0.14, 0, 0.12), at(head, 0, 0, 0.27), at(head, -0.22, 0, 0.08)], 0.03)
    if h.hat == "brim":
        toy.disc(at(head, 0, 0, 0.09), rng.uniform(0.22, 0.28), 0.04, axis="z")
        toy.disc(at(head, 0, 0, 0.17), 0.13, 0.17, axis="z", edge=0.05)
    if "coat" in h.wears:
        hem = [at(hip, x, y, -0.38) for x in (-0.17, 0.15) for y in (-0.22, 0.22)]
        toy.hull([*hem, at(hip, 0, 0.13, 0.1), at(hip, 0, -0.13, 0.1)], 0.05)
    if "pack" in h.wears:
        toy.box(at(chest, -0.42, -0.19, -0.42), at(chest, -0.14, 0.19, 0.06), 0.06)
    if "quiver" in h.wears:
        toy.tube([at(chest, -0.17, 0.12, -0.35), at(chest, -0.2, -0.15, 0.25)], 0.06)


def _give(toy: Toy, h: Human, left, right) -> None:
    """Put what the figure holds into its hands."""
    both = (np.asarray(left) + right) / 2
    along = (left - right) / np.linalg.norm(left - right)
    if "sword" in h.holds:
        toy.tube([right - [0.05, 0, 0.1], at(right, 0.3, -0.1, 0.65)], [0.035, 0.02])
        toy.hull([at(right, 0.06, -0.12, 0.1), at(right, 0.06, 0.08, 0.1)], 0.025)
    if "shield" in h.holds:
        toy.disc(at(left, 0.07, 0.02, 0), 0.3, 0.06, axis="x")
    if "ball" in h.holds:
        toy.ball(at(both, 0.05, 0, 0.12), (0.2, 0.2, 0.2))
    if "bow" in h.holds:
        tips = [
            at(left, -0.2, 0, 0.6),
            at(left, 0.05, 0, 0.3),
            at(left, 0.05, 0, -0.3),
            at(left, -0.2, 0, -0.6),
        ]
        toy.tube(tips, 0.03)
        toy.tube([right, left + along * 0.25], 0.018)
    if "pistol" in h.holds:
        toy.tube(
            [right - [0, 0, 0.05], at(right, 0.02, 0, 0.07), at(right, 0.28, 0, 0.07)], [0.035, 0.035, 0.025]
        )
    if "rifle" in h.holds:
        toy.tube([right - along * 0.3 - [0, 0, 0.05], right], [0.06, 0.045])
        toy.tube([right, left + along * 0.45], [0.045, 0.022])
    if "club" in h.holds:
        toy.tube([right - [0, 0, 0.1], at(right, 0.25, -0.15, 0.6)], [0.04, 0.12])
    if "spear" in h.holds:
        toy.tube([right - [0.8, 0, 0.12], at(right, 0.9, 0, 0.12)], 0.03)
    if "flag" in h.holds:
        pole = np.array([right[0], right[1], 0.05])
        toy.tube([pole, at(pole, 0, 0, 2.2)], 0.03)
        toy.hull(
            [at(pole, -0.6, 0.1, 2.1), at(pole, 0, 0, 2.15), at(pole, -0.55, 0.1, 1.65), at(pole, 0, 0, 1.6)],
            0.02,
        )
    if "crate" in h.holds:
        toy.box(at(both, -0.1, -0.3, -0.08), at(both, 0.3, 0.3, 0.3), 0.03)
