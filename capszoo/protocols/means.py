"""Protocols whose number is a mean over test images rather than a share of wrong ones.

They look at the first images of the test split. `likelihood_comparison` and `sparsity` say more about the same.
"""

import abc
import dataclasses
import typing

import numpy as np

from capszoo.config import require_at_least, section
from capszoo.models.architecture import BoundsLikelihood, InfersIteratively
from capszoo.protocols.likelihood import gaussian_likelihoods, importance_weights, log_mean_exp, noisy_images
from capszoo.protocols.protocol import NumberProtocol, variant
from capszoo.protocols.sparsity import FEED_FORWARD, INFERENCE, PENALISED, THRESHOLD, infer_activities
from capszoo.protocols.statistics import mean_interval


@dataclasses.dataclass(frozen=True)
class MeanOfImages(NumberProtocol):
    """The mean over images, at least two, of a number, and its 95 % interval as if means were normal."""

    def __post_init__(self):
        require_at_least(self, 2, "images")

    @abc.abstractmethod
    def values(self, subject, progress):
        """The number of each image, `[N]`."""

    def number(self, subject, progress):
        values = self.values(subject, progress)
        data = self.data(subject.recipe)
        return {
            "value": float(values.mean()),
            "interval": mean_interval(values),
            "wrong": None,
            "n": len(values),
            "data": data.set_name,
            "fingerprint": self.open(subject.recipe).fingerprint(),
        }


@section("protocol", "likelihood")
@dataclasses.dataclass(frozen=True)
class LogLikelihood(MeanOfImages):
    """Log-likelihood of the first test images with the model's noise: the bound of K samples.

    where:
      images: how many. samples: K.
    """

    images: int = 1000
    samples: int = 50

    source: typing.ClassVar[str] = "Burda et al. 2015, equation 8"
    metric: typing.ClassVar[str] = "log-likelihood of noisy images"
    unit: typing.ClassVar[str] = "nats per dimension"
    role: typing.ClassVar[type] = BoundsLikelihood

    def __post_init__(self):
        super().__post_init__()
        require_at_least(self, 1, "samples")

    def values(self, subject, progress):
        return self._likelihoods(subject, progress)[0]

    def _likelihoods(self, subject, progress):
        """Log-likelihoods of each noisy image for each of its numbers, and the images."""
        recipe = subject.recipe
        clean, noisy = noisy_images(recipe.data.open("test"), self.images, recipe.model.noise)
        progress.begin(self.section_name, len(clean))
        logs = importance_weights(subject, clean, noisy, self.samples, progress=progress)
        return log_mean_exp(logs) / noisy[0].size, noisy


@section("protocol", "likelihood_gain")
@dataclasses.dataclass(frozen=True)
class LikelihoodGain(LogLikelihood):
    """By how much `likelihood` is above that under a Gaussian with all covariances, fitted to the training images."""

    metric: typing.ClassVar[str] = "log-likelihood above a Gaussian's"

    def values(self, subject, progress):
        values, noisy = self._likelihoods(subject, progress)
        recipe = subject.recipe
        gaussian, _ = gaussian_likelihoods(recipe.data.open("train"), noisy, recipe.model.noise)
        return values - gaussian / noisy[0].size


@dataclasses.dataclass(frozen=True)
class ActiveCapsules(MeanOfImages):
    """Class capsules longer than 0.1 in one condition of figure 1.

    where:
      images: how many; 500 steps of inference are made for each.
    """

    images: int = 50

    source: typing.ClassVar[str] = "Kiefer et al. 2022, section 3.1 and figure 1"
    unit: typing.ClassVar[str] = "of 10"
    role: typing.ClassVar[type] = InfersIteratively
    condition: typing.ClassVar[str]

    def values(self, subject, progress):
        split = subject.recipe.data.open("test")
        batch = split.batch(np.arange(min(self.images, len(split))), None)
        poses, _ = infer_activities(
            subject, batch["images"], batch["labels"], conditions=(self.condition,), progress=progress
        )
        return (np.linalg.norm(poses[self.condition]["class_capsules"], axis=-1) > THRESHOLD).sum(axis=1)

    def number(self, subject, progress):
        return {**super().number(subject, progress), "unit": f"of {subject.recipe.data.num_classes}"}


for _name, _condition, _promise in (
    (
        "active_feed_forward",
        FEED_FORWARD,
        "Class capsules longer than 0.1 after a feed-forward pass (figure 1, C).",
    ),
    (
        "active_inference",
        INFERENCE,
        "The same after iterative inference with the label clamped (figure 1, D).",
    ),
    (
        "active_inference_l1",
        PENALISED,
        "The same with an L1 penalty of weight 1 on the class capsules (figure 1, E).",
    ),
):
    variant(
        ActiveCapsules,
        _name,
        _promise,
        condition=_condition,
        metric=f"class capsules active after {_condition}",
    )
