"""How many capsules stay long: after a feed-forward pass, and after iterative inference with and without a penalty."""

import dataclasses
import typing

import numpy as np

from capszoo.config import require_at_least, section
from capszoo.models.architecture import InfersIteratively, require
from capszoo.progress import QUIET
from capszoo.protocols.protocol import Protocol
from capszoo.protocols.report import MeasuredReport, of_test_images

# The conditions of figure 1: C, D and E.
FEED_FORWARD, INFERENCE, PENALISED = CONDITIONS = "feed-forward", "inference", "inference with L1"
# What the margin loss calls absent.
THRESHOLD = 0.1
DRAWN = 2  # pictures of a drawing of inferred poses
# The paper's weight of the L1 norm, by stage.
PENALTY = {"class_capsules": 1.0}


@dataclasses.dataclass(frozen=True)
class Sparsity:
    """How the lengths |v_j| of O capsules are distributed, as means over images.

        hoyer = (sqrt(O) - sum_j |v_j| / sqrt(sum_j |v_j|^2)) / (sqrt(O) - 1)

    where:
      active: number of capsules longer than 0.1.
      hoyer: 0 where all are equally long, 1 where only one has a length.
      largest: length of the longest capsule.
      labelled_longest, labelled, others: share of the images whose labelled capsule is the longest, its length, and
        the mean length of the others, None where there is a single one; all None for capsules that are no classes.
    """

    active: float
    hoyer: float
    largest: float
    labelled_longest: float | None = None
    labelled: float | None = None
    others: float | None = None


@dataclasses.dataclass(frozen=True)
class SparsityReport(MeasuredReport):
    """The sparsity of every layer of capsules with votes from all of the one below, by condition.

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
    # A row of zeros counts as even, and so does a single capsule.
    ratio = lengths.sum(axis=1) / np.maximum(np.linalg.norm(lengths, axis=1), 1e-12)
    uneven = lengths.any(axis=1) & (lengths.shape[1] > 1)
    hoyer = np.where(uneven, (root - ratio) / max(root - 1, 1e-12), 0.0)
    sparsity = Sparsity(
        active=float((lengths > THRESHOLD).sum(axis=1).mean()),
        hoyer=float(hoyer.mean()),
        largest=float(lengths.max(axis=1).mean()),
    )
    if labels is None:
        return sparsity
    right = np.eye(lengths.shape[1], dtype=bool)[labels]
    return dataclasses.replace(
        sparsity,
        labelled_longest=float((lengths.argmax(axis=1) == labels).mean()),
        labelled=float(lengths[right].mean()),
        others=float(lengths[~right].mean()) if lengths.shape[1] > 1 else None,
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
    require(architecture, InfersIteratively, "iterative inference")
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


@section("protocol", "sparsity")
@dataclasses.dataclass(frozen=True)
class SparsityProtocol(Protocol):
    """How sparse inferred activities are: figure 1, C without, D with inference, E with a penalty as well.

    where:
      images: how many test images, the first ones.
      clamped: clamp the label, as the paper does.
      penalty, steps, rate: see `infer_activities`.

    Errors: see `infer_activities`.
    Source: Kiefer et al. 2022, section 3.1 and figure 1, which shows two images and no numbers.
    """

    images: int = 50
    clamped: bool = True
    penalty: dict[str, float] = dataclasses.field(default_factory=lambda: dict(PENALTY))
    steps: int = 500
    rate: float = 0.01

    source: typing.ClassVar[str] = "Kiefer et al. 2022, section 3.1 and figure 1"
    metric: typing.ClassVar[str] = "how the lengths of capsules are spread"
    unit: typing.ClassVar[str] = "capsules"
    role: typing.ClassVar[type] = InfersIteratively

    def __post_init__(self):
        require_at_least(self, 1, "images", "steps")

    def measured(self, subjects, command, progress):
        (subject,) = subjects
        split = subject.recipe.data.open("test")
        count = min(self.images, len(split))
        batch = split.batch(np.arange(count), None)
        poses, energies = self._inferred(subject, batch, progress)
        return SparsityReport(
            layers={
                name: {
                    condition: sparsity_of(
                        layers[name], batch["labels"] if name == "class_capsules" else None
                    )
                    for condition, layers in poses.items()
                }
                for name in poses[FEED_FORWARD]
            },
            energy={condition: float(values.mean()) for condition, values in energies.items()},
            model=subject.name,
            step=subject.step,
            clamped=self.clamped,
            penalty=self.penalty,
            steps=self.steps,
            rate=self.rate,
            **of_test_images(subject.recipe.data, count, command),
        )

    def _inferred(self, subject, batch, progress=QUIET):
        """Poses and energies of a batch, by condition."""
        labels = batch["labels"] if self.clamped else None
        options = {"penalty": self.penalty, "steps": self.steps, "rate": self.rate}
        return infer_activities(subject, batch["images"], labels, progress=progress, **options)

    def rows(self, result):
        return [
            {"layer": layer, "condition": condition, **_texts(sparsity)}
            for layer, conditions in result.layers.items()
            for condition, sparsity in conditions.items()
        ]

    def draw(self, subjects, result):
        from capszoo.visualize import draw_inferred_poses

        (subject,) = subjects
        data = subject.recipe.data
        split = data.open("test")
        batch = split.batch(np.arange(min(DRAWN, len(split))), None)
        poses, _ = self._inferred(subject, batch)
        drawn = {condition: layers["class_capsules"] for condition, layers in poses.items()}
        return {"inferred": draw_inferred_poses(batch["images"], drawn, batch["labels"], data.class_names)}


def _texts(sparsity):
    """A `Sparsity` as texts by column."""
    share = sparsity.labelled_longest
    lengths = {"labelled": sparsity.labelled, "others": sparsity.others}
    return {
        "active": f"{sparsity.active:.2f}",
        "Hoyer": f"{sparsity.hoyer:.3f}",
        "longest": f"{sparsity.largest:.3f}",
        "labelled longest": "" if share is None else f"{share:.1%}",
        **{column: "" if length is None else f"{length:.3f}" for column, length in lengths.items()},
    }
