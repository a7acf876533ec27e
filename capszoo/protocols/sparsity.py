"""How many capsules stay long: after a feed-forward pass, and after iterative inference with and without a penalty."""

import dataclasses

import numpy as np

from capszoo.config import ConfigError
from capszoo.progress import QUIET
from capszoo.protocols.report import MeasuredReport, of_test_images

# The conditions of figure 1: C, D and E.
FEED_FORWARD, INFERENCE, PENALISED = CONDITIONS = "feed-forward", "inference", "inference with L1"
# What the margin loss calls absent.
THRESHOLD = 0.1
# The paper's weight of the L1 norm, by stage.
PENALTY = {"class_capsules": 1.0}


@dataclasses.dataclass(frozen=True)
class Sparsity:
    """How the lengths |v_j| of O capsules are spread, as means over images.

        hoyer = (sqrt(O) - sum_j |v_j| / sqrt(sum_j |v_j|^2)) / (sqrt(O) - 1)

    where:
      active: number of capsules longer than 0.1.
      hoyer: 0 where all are equally long, 1 where only one has a length.
      largest: length of the longest capsule.
      labelled_longest, labelled, others: share of the images whose labelled capsule is the longest, its length, and
        the mean length of the others; None for capsules that are no classes.
    """

    active: float
    hoyer: float
    largest: float
    labelled_longest: float | None = None
    labelled: float | None = None
    others: float | None = None


@dataclasses.dataclass(frozen=True)
class SparsityReport(MeasuredReport):
    """The sparsity of every layer of capsules that hears all of the one below, by condition.

    where:
      layers: by layer, then by condition: "feed-forward", "inference", "inference with L1".
      energy: mean energy of the images after inference, by condition, without the penalty.
      model, step: of the network; clamped: whether the label was; the rest: options of `IterativeInference`.
    """

    layers: dict[str, dict[str, Sparsity]]
    energy: dict[str, float]
    model: str
    step: int | None
    clamped: bool
    penalty: dict[str, float]
    steps: int
    rate: float


def sparsity_of(poses, labels=None) -> Sparsity:
    """`Sparsity` of poses `[N, O, D]`; labels `[N]` where capsules are classes."""
    lengths = np.linalg.norm(poses, axis=-1)
    root = np.sqrt(lengths.shape[1])
    # A row of zeros has no spread; it counts as even.
    ratio = lengths.sum(axis=1) / np.maximum(np.linalg.norm(lengths, axis=1), 1e-12)
    hoyer = np.where(lengths.any(axis=1), (root - ratio) / (root - 1), 0.0)
    spread = Sparsity(
        active=float((lengths > THRESHOLD).sum(axis=1).mean()),
        hoyer=float(hoyer.mean()),
        largest=float(lengths.max(axis=1).mean()),
    )
    if labels is None:
        return spread
    right = np.eye(lengths.shape[1], dtype=bool)[labels]
    return dataclasses.replace(
        spread,
        labelled_longest=float((lengths.argmax(axis=1) == labels).mean()),
        labelled=float(lengths[right].mean()),
        others=float(lengths[~right].mean()),
    )


def infer_activities(
    subject,
    images,
    labels=None,
    *,
    conditions=CONDITIONS,
    penalty=None,
    steps=500,
    rate=0.01,
    batch_size=25,
    progress=QUIET,
):
    """Poses by condition, then by layer: `[N, O, D]`, of every dense layer of capsules, those of the classes last.

    where:
      subject: a `Subject` whose model infers, such as 'predictive_coding'.
      images, labels: `[N, H, W, C]`, and `[N]` or None, which clamps nothing.
      conditions: those of figure 1 that are wanted.
      penalty: weight of the L1 norm by stage; by default 1 for the class capsules.
      steps, rate: see `capszoo.models.IterativeInference`.
      progress: counts images, each once for each condition.

    Returns the poses and, by condition, the energies `[N]` without the penalty.
    Errors: `ConfigError` for a model that cannot infer; `ArithmeticError` for a descent that ends higher than
    it began.
    """
    architecture = subject.recipe.model
    if not hasattr(architecture, "inference"):
        raise ConfigError(
            f"iterative inference needs a model such as 'predictive_coding'. Received: {architecture.section_name!r}"
        )
    one_hot = None if labels is None else np.eye(subject.recipe.data.num_classes, dtype="float32")[labels]
    penalty = PENALTY if penalty is None else penalty
    of = {FEED_FORWARD: (0, None), INFERENCE: (steps, None), PENALISED: (steps, penalty)}
    poses, energies = {}, {}
    progress.begin("inference", len(conditions) * len(images))
    for condition in conditions:
        count, weights = of[condition]
        infer = architecture.inference(subject.model, steps=count, rate=rate, sparsity=weights)
        parts, descents = [], []
        for start in range(0, len(images), batch_size):
            rows = slice(start, start + batch_size)
            *part, descent = _infer(infer, images[rows], None if one_hot is None else one_hot[rows])
            parts.append(part)
            descents.append(descent)
            progress.advance(len(images[rows]))
        poses[condition] = {name: np.concatenate([part[0][name] for part in parts]) for name in parts[0][0]}
        energies[condition] = np.concatenate([part[1] for part in parts])
        before, after = np.concatenate(descents, axis=1).mean(axis=1)
        # Where nothing moves, rounding may. What is no number any more is not less either.
        if not after <= before + 1e-3 * (1 + abs(before)):
            raise ArithmeticError(
                f"{condition}: the energy rose from {before:.3g} to {after:.3g}. Lower the rate of {rate}."
            )
    return poses, energies


def _infer(infer, images, labels):
    """Of one batch: poses of the dense layers of capsules, energies without the penalty, and F before and after."""
    states = infer(images, labels)
    poses = {name: np.asarray(value) for name, value in states.items() if len(value.shape) == 3}
    descent = [infer.energies(images, activities, labels) for activities in (infer.start(images), states)]
    return poses, np.asarray(infer.energies(images, states, labels, penalised=False)), np.asarray(descent)


def measure_sparsity(
    subject,
    images=200,
    *,
    clamped=True,
    penalty=None,
    steps=500,
    rate=0.01,
    command="",
    progress=QUIET,
) -> SparsityReport:
    """Measures figure 1 on the first `images` test images: C without, D with inference, E with a penalty as well.

    where:
      clamped: clamp the label, as the paper does.
      the rest: see `infer_activities`.

    Errors: see `infer_activities`.
    Source: Kiefer et al. 2022, section 3.1 and figure 1, which shows two images and no numbers.
    """
    split = subject.recipe.data.open("test")
    count = min(images, len(split))
    batch = split.batch(np.arange(count), None)
    penalty = PENALTY if penalty is None else penalty
    poses, energies = infer_activities(
        subject,
        batch["images"],
        batch["labels"] if clamped else None,
        penalty=penalty,
        steps=steps,
        rate=rate,
        progress=progress,
    )
    return SparsityReport(
        layers={
            name: {
                condition: sparsity_of(layers[name], batch["labels"] if name == "class_capsules" else None)
                for condition, layers in poses.items()
            }
            for name in poses[FEED_FORWARD]
        },
        energy={condition: float(values.mean()) for condition, values in energies.items()},
        model=subject.name,
        step=subject.step,
        clamped=clamped,
        penalty=penalty,
        steps=steps,
        rate=rate,
        **of_test_images(subject.recipe.data, count, command),
    )
