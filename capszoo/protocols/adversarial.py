"""Robustness against adversarial images, as Hinton et al. 2018 look at it in section 6."""

import collections
import dataclasses
import itertools
import typing

import numpy as np

from capszoo.config import ConfigError, section
from capszoo.data.cropping import moments
from capszoo.data.split import Stream, generator
from capszoo.models.architecture import Classifies
from capszoo.protocols.attacks import BIM_REACH, BIM_STEPS, bim, fgsm, loss_gradient
from capszoo.protocols.protocol import Protocol
from capszoo.protocols.report import MeasuredReport, of_test_images
from capszoo.protocols.statistics import wilson
from capszoo.protocols.subject import require_names
from capszoo.training.scoring import wrong

ATTACKS = {"fgsm": fgsm, "bim": bim}
EPSILONS = (0.05, 0.1, 0.2, 0.3, 0.4)
BATCH = 50
PAPER = (
    "The capsules' accuracy after an untargeted attack never drops below chance (20 %).",
    "The CNN's accuracy is significantly below chance at an epsilon of 0.2.",
    "The capsules' gradients have fewer zeros than the CNN's, and are smaller by 2 orders of magnitude.",
    "On images made with another CNN the capsules are not noticeably better than a CNN.",
)


@dataclasses.dataclass(frozen=True)
class Point:
    """A share at one epsilon: `count` of `n` images, and its 95 % Wilson interval.

    For targeted attacks `value` is the mean of the shares of all targets; `count` and `n` are sums over them, and the
    interval is that of this share of as many images as there are: each is attacked towards all other classes.
    """

    epsilon: float
    value: float
    interval: tuple[float, float]
    count: int
    n: int


@dataclasses.dataclass(frozen=True)
class Curve:
    """A line of figure 3.

    where:
      model: who is tested; made_with: the model whose gradients made the images, the same one in a white-box attack.
      attack: "fgsm" or "bim"; targeted: whether towards a wrong class.
      metric: "accuracy" (of images that should be taken for what they are) or "success rate" (of targeted attacks: the
        share of images of other classes that are taken for the target).
      points: by rising epsilon, from 0, which is no attack.
    """

    model: str
    made_with: str
    attack: str
    targeted: bool
    metric: str
    points: tuple[Point, ...]


@dataclasses.dataclass(frozen=True)
class GradientReport:
    """Whether an attack on a model has anything to go by: its gradients at unchanged images.

    where:
      zero_share: share of the pixels' derivatives that are exactly zero.
      unread_share: share of the pixels whose derivative is zero in every image: the model does not look there (windows
        with strides can leave out the last rows and columns). They are part of zero_share.
      blind_share: share of the images all of whose derivatives are zero.
      mean_magnitude: mean of the derivatives' absolute values.
    """

    model: str
    zero_share: float
    unread_share: float
    blind_share: float
    mean_magnitude: float


@dataclasses.dataclass(frozen=True)
class Robustness(MeasuredReport):
    """All curves of some models on one data set, and all that is needed to measure them again.

    where:
      out_of: how many images there are, of which `n` were attacked.
      classes: how many there are; chance is 1 / classes.
      space: what epsilon is measured in; loss: what the attacks change; steps: how BIM went.
      paper: what the paper says; its figure has no numbers.
    """

    out_of: int
    classes: int
    space: str
    loss: str
    steps: str
    curves: tuple[Curve, ...]
    gradients: tuple[GradientReport, ...]
    paper: tuple[str, ...] = PAPER


@section("protocol", "attack")
@dataclasses.dataclass(frozen=True)
class AttackProtocol(Protocol):
    """Attacks models with `fgsm` and `bim`, away from each image's class and towards each other class.

    Each model is attacked with its own gradients (white box).

    where:
      images: how many of the test split, chosen at random once and for all; 0 takes all.
      epsilons: positive, rising; 0 is always measured.
      loss: see `loss_gradient`.
      source_model: the name of one of the models, which is not attacked itself: its images, made to be taken for
        anything else, are shown to all others as well (black box). "" leaves that out.

    Errors: `ConfigError` for illegal options, for models of different data sets, two of the same name, several labels
    per image, or images that are only there standardised; `DataNotFound`.
    Source: Hinton et al. 2018, section 6 and figure 3; the share of zero gradients after Brendel and Bethge 2017.
    Differs from the paper: its epsilon has no unit. It is one of the models' input here, after standardisation, where
    1 is the deviation of an image's pixels; pixels stay between the image's own black and white.
    """

    images: int = 500
    epsilons: tuple[float, ...] = EPSILONS
    loss: typing.Literal["cross_entropy", "objective"] = "cross_entropy"
    source_model: str = ""

    source: typing.ClassVar[str] = "Hinton et al. 2018, section 6 and figure 3"
    metric: typing.ClassVar[str] = "accuracy and success rate"
    role: typing.ClassVar[type] = Classifies
    models: typing.ClassVar[tuple[int, int | None]] = (1, None)

    def __post_init__(self):
        rising = (np.diff((0.0, *self.epsilons)) > 0).all()
        if not self.epsilons or not np.isfinite(self.epsilons).all() or not rising:
            raise ConfigError(f"epsilons must be positive and rise. Received: {self.epsilons}")

    def measured(self, subjects, command, progress):
        data = _common_data(subjects)
        source, victims = self._parted(subjects)
        grey = _grey(data)
        count = self.images or len(grey)
        if not 1 <= count <= len(grey):
            raise ConfigError(
                f"images must be from 1 to {len(grey)}, or 0 for all of them. Received: {self.images}"
            )
        chosen = np.sort(generator(0, Stream.FIXED, 0).permutation(len(grey))[:count])
        tally, gradients = _Tally(), {}
        functions = {s.name: loss_gradient(s.model, s.recipe, self.loss) for s in subjects}
        progress.begin("attack", count)
        for start in range(0, count, BATCH):
            batch = _inputs(data, grey, chosen[start : start + BATCH])
            for subject in victims:
                gradients.setdefault(subject.name, []).append(functions[subject.name](*batch[:2]))
                for target in (None, *range(data.num_classes)):
                    _attack([subject], subject, functions[subject.name], batch, target, self.epsilons, tally)
            if source:
                _attack(victims, source, functions[source.name], batch, None, self.epsilons, tally)
            progress.advance(len(batch[1]))
        return Robustness(
            out_of=len(grey),
            classes=data.num_classes,
            space="model input"
            + (", standardised" if data.preprocessing.get("standardise") else ", in [0, 1]"),
            loss=self.loss,
            steps=f"{BIM_STEPS} steps of {BIM_REACH / BIM_STEPS:g} epsilon",
            curves=tally.curves(count),
            gradients=tuple(
                _gradient_report(name, np.concatenate(parts)) for name, parts in gradients.items()
            ),
            **of_test_images(data, count, command),
        )

    def _parted(self, subjects):
        """The model whose images are shown to the others, or None, and those that are attacked."""
        if not self.source_model:
            return None, subjects
        names = [subject.name for subject in subjects]
        if self.source_model not in names or len(subjects) < 2:
            raise ConfigError(
                f"source_model must be one of at least two models, {', '.join(names)}. Received: {self.source_model!r}"
            )
        source = subjects[names.index(self.source_model)]
        return source, [subject for subject in subjects if subject is not source]

    def rows(self, result):
        rows = []
        for curve in result.curves:
            black_box = "" if curve.model == curve.made_with else f", images of {curve.made_with}"
            direction = "targeted" if curve.targeted else "untargeted"
            shares = {f"{point.epsilon:g}": f"{point.value:.1%}" for point in curve.points}
            attack = f"{curve.attack} {direction}, {curve.metric}"
            rows.append({"model": f"{curve.model}{black_box}", "attack": attack, **shares})
        return rows

    def notes(self, result):
        return [
            f"{each.model}: {each.zero_share:.2%} of the gradients are zero ({each.unread_share:.2%} in every image; "
            f"{each.blind_share:.2%} of the images have no other); mean magnitude {each.mean_magnitude:.2e}"
            for each in result.gradients
        ]

    def draw(self, subjects, result):
        return {"attack": draw_robustness(result)}


def _common_data(subjects):
    require_names(subjects)
    data = subjects[0].recipe.data
    for subject in subjects:
        other = subject.recipe.data
        # Options that only training knows, such as which toy validates, may differ.
        if other != data and _taken(other) != _taken(data):
            raise ConfigError(
                f"the models must take the same images. Received: {data} and, of {subject.name}, {other}"
            )
    if data.labels_per_image != 1:
        raise ConfigError(f"attacks need one label per image. Received: {data.labels_per_image}")
    return data


def _taken(data):
    """What a model is given of the test split: its images, and what becomes of them."""
    return data.open("test").fingerprint(), data.preprocessing


def _grey(data):
    """The test split before standardisation, in [0, 1]."""
    grey = data.unstandardised
    if grey.preprocessing.get("standardise"):
        raise ConfigError(
            f"attacks need images before they are standardised, and {data.set_name!r} does not give them, see "
            "DataSet.unstandardised."
        )
    return grey.open("test")


def _inputs(data, grey, indices):
    """Images as the model takes them, their labels, and what black and white are in each of them."""
    batch = grey.batch(indices, None)
    images, labels = batch["images"], batch["labels"]
    if not data.preprocessing.get("standardise"):
        return images, labels, np.float32(0), np.float32(1)
    mean, deviation = moments(images)
    return (images - mean) / deviation, labels, -mean / deviation, (1 - mean) / deviation


def _attack(victims, maker, gradient, batch, target, epsilons, tally):
    """Counts what every victim makes of one batch of images, changed with the maker's gradient."""
    images, labels, low, high = batch
    if target is not None:
        others = labels != target
        if not others.any():
            return
        images, low, high = (x[others] if np.ndim(x) else x for x in (images, low, high))
        labels = np.full(others.sum(), target)
    for name, attack in ATTACKS.items():
        changed = attack(gradient, images, labels, epsilons, low, high, targeted=target is not None)
        for epsilon, pictures in zip((0.0, *epsilons), itertools.chain([images], changed), strict=True):
            for victim in victims:
                hits = ~wrong(np.asarray(victim.model.predict_on_batch(pictures)["scores"]), labels)
                tally.add((victim.name, maker.name, name, target is not None), epsilon, target, hits)


class _Tally:
    """Counted images by curve, epsilon and target."""

    def __init__(self):
        # curve -> epsilon -> target -> (count, n)
        self.counts = collections.defaultdict(lambda: collections.defaultdict(dict))

    def add(self, curve, epsilon, target, hits):
        count, n = self.counts[curve][epsilon].get(target, (0, 0))
        self.counts[curve][epsilon][target] = count + int(hits.sum()), n + len(hits)

    def curves(self, images):
        return tuple(
            Curve(
                *curve,
                "success rate" if curve[-1] else "accuracy",
                tuple(_point(epsilon, list(targets.values()), images) for epsilon, targets in points.items()),
            )
            for curve, points in self.counts.items()
        )


def _point(epsilon, counts, images):
    """The point of `counts`, a (count, n) for each target, where so many `images` were attacked."""
    value = float(np.mean([count / n for count, n in counts]))
    return Point(epsilon, value, wilson(value * images, images), *map(sum, zip(*counts, strict=True)))


def _gradient_report(name, gradients):
    zero = gradients == 0
    return GradientReport(
        model=name,
        zero_share=float(zero.mean()),
        unread_share=float(zero.all(axis=0).mean()),
        blind_share=float(zero.all(axis=(1, 2, 3)).mean()),
        mean_magnitude=float(np.abs(gradients).mean()),
    )


def draw_robustness(report: Robustness):
    """Figure 3 as a matplotlib `Figure`: accuracy and success rate by epsilon, and where measured the black box.

    Whole lines are FGSM, dashed ones BIM; the grey line is chance. Bands are 95 % intervals.
    """
    from matplotlib.figure import Figure

    panels = {
        "accuracy after an attack": [c for c in report.curves if not c.targeted and c.model == c.made_with],
        "success rate of a targeted attack": [c for c in report.curves if c.targeted],
        "accuracy on another model's images": [c for c in report.curves if c.model != c.made_with],
    }
    panels = {title: curves for title, curves in panels.items() if curves}
    figure = Figure(figsize=(4.5 * len(panels), 3.6), layout="constrained")
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(c.model for c in report.curves))}
    for axes, (title, curves) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for curve in curves:
            epsilons, values = ([getattr(p, key) for p in curve.points] for key in ("epsilon", "value"))
            low, high = zip(*(p.interval for p in curve.points), strict=True)
            style = {"fgsm": "-", "bim": "--"}[curve.attack]
            colour = colours[curve.model]
            axes.plot(epsilons, values, style, color=colour, label=f"{curve.model}, {curve.attack.upper()}")
            axes.fill_between(epsilons, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.axhline(1 / report.classes, color="silver", linewidth=1, zorder=0)
        axes.set(title=title, xlabel=f"epsilon ({report.space})", ylim=(-0.02, 1.02))
    figure.axes[0].legend(fontsize="small")
    figure.suptitle(f"{report.n} of {report.out_of} images of {report.data} {report.split}", fontsize="small")
    return figure
