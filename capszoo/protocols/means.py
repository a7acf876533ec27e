"""Protocols whose number is a mean over test images rather than a share of wrong ones.

  likelihood       log-likelihood of noisy test images under a generative model such as 'attention'
  likelihood_gain  by how much that is above the log-likelihood under a Gaussian with all covariances
  active_feed_forward, active_inference, active_inference_l1
                   class capsules that stay long in a model such as 'predictive_coding'

They look at the first images of the test split. `measure_likelihood` and `measure_sparsity` say more about the same.
"""

import dataclasses

import numpy as np

from capszoo.config import ConfigError
from capszoo.progress import QUIET
from capszoo.protocols.likelihood import gaussian_likelihoods, importance_weights, log_mean_exp, noisy_images
from capszoo.protocols.sparsity import FEED_FORWARD, INFERENCE, PENALISED, THRESHOLD, infer_activities
from capszoo.protocols.statistics import mean_interval
from capszoo.protocols.subject import Subject

OF_LIKELIHOOD, SAMPLES = 1000, 50
# Images of which activities are inferred: 500 steps for each.
OF_INFERENCE = 50
NATS = "nats a pixel"


@dataclasses.dataclass(frozen=True)
class Mean:
    """What a number is, its values for each image `[N]`, and their unit."""

    metric: str
    values: np.ndarray
    unit: str

    @property
    def value(self) -> float:
        """The mean."""
        return float(self.values.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The mean's 95 % interval."""
        return mean_interval(self.values)


def likelihood(model, recipe, progress=QUIET):
    """Log-likelihood of the first 1,000 test images with the model's noise: the bound of 50 samples.

    See `capszoo.protocols.measure_likelihood`.
    """
    values, _ = _likelihoods(model, recipe, progress)
    return Mean("log-likelihood of noisy images", values, NATS)


def likelihood_gain(model, recipe, progress=QUIET):
    """By how much `likelihood` is above that under a Gaussian fitted to the training images."""
    values, noisy = _likelihoods(model, recipe, progress)
    gaussian, _ = gaussian_likelihoods(recipe.data.open("train"), noisy, recipe.model.noise)
    return Mean("log-likelihood above a Gaussian's", values - gaussian / noisy[0].size, NATS)


def active_feed_forward(model, recipe, progress=QUIET):
    """Class capsules longer than 0.1 after a feed-forward pass, of the first 50 test images (figure 1, C)."""
    return _active(FEED_FORWARD, model, recipe, progress)


def active_inference(model, recipe, progress=QUIET):
    """The same after 500 steps of iterative inference with the label clamped (Kiefer et al. 2022, figure 1, D)."""
    return _active(INFERENCE, model, recipe, progress)


def active_inference_l1(model, recipe, progress=QUIET):
    """The same with an L1 penalty of weight 1 on the class capsules (figure 1, E)."""
    return _active(PENALISED, model, recipe, progress)


MEANS = {
    function.__name__: function
    for function in (likelihood, likelihood_gain, active_feed_forward, active_inference, active_inference_l1)
}


def _active(condition, model, recipe, progress):
    split = recipe.data.open("test")
    batch = split.batch(np.arange(min(OF_INFERENCE, len(split))), None)
    subject = Subject(recipe.name, recipe, model)
    poses, _ = infer_activities(
        subject, batch["images"], batch["labels"], conditions=(condition,), progress=progress
    )
    lengths = np.linalg.norm(poses[condition]["class_capsules"], axis=-1)
    return Mean(f"class capsules active after {condition}", (lengths > THRESHOLD).sum(axis=1), "of 10")


def _likelihoods(model, recipe, progress):
    """Log-likelihoods of each noisy image for each of its numbers, and the images."""
    if not hasattr(recipe.model, "bound"):
        raise ConfigError(
            f"a likelihood needs a model such as 'attention'. Received: {recipe.model.section_name!r}"
        )
    clean, noisy = noisy_images(recipe.data.open("test"), OF_LIKELIHOOD, recipe.model.noise)
    progress.begin("likelihood", len(clean))
    logs = importance_weights(model, clean, noisy, SAMPLES, progress=progress)
    return log_mean_exp(logs) / noisy[0].size, noisy
