"""How likely held-out images are to a generative model of noisy images, beside what a Gaussian makes of them."""

import dataclasses
import math
import typing

import numpy as np

from capszoo.config import ConfigError, require_at_least, section
from capszoo.data.pipeline import evaluation_batches
from capszoo.data.split import Stream, generator
from capszoo.models.architecture import BoundsLikelihood
from capszoo.progress import QUIET
from capszoo.protocols.protocol import Protocol
from capszoo.protocols.report import MeasuredReport, of_test_images
from capszoo.protocols.statistics import mean_interval
from capszoo.protocols.subject import require_names


@dataclasses.dataclass(frozen=True)
class LikelihoodReport(MeasuredReport):
    """Log-likelihoods of the same noisy test images, in nats for each number of an image.

    where:
      models: by name, of each model `bound`, the evidence lower bound; `importance`, the bound of K samples, which is
        nearer to the truth and never above it but by chance; `gain`, by how much that is above `gaussian`, the mean
        over images of the difference; and half the width of the gain's 95 % interval, `interval`.
      gaussian: exact, of one Gaussian with all covariances, fitted to the training images; independent: of one
        without covariances.
      ceiling: what a model could reach that knew the images and had only the noise to guess.
      choice: by model, the mean probability of a part's most probable parent; parents: objects that are the most
        probable parent of some part, mean over images.
      noise: standard deviation of the noise; samples: K.
    """

    models: dict[str, dict[str, float]]
    gaussian: float
    independent: float
    ceiling: float
    choice: dict[str, float]
    parents: dict[str, float]
    noise: float
    samples: int


@section("protocol", "likelihood_comparison")
@dataclasses.dataclass(frozen=True)
class LikelihoodProtocol(Protocol):
    """Log-likelihoods of the first test images, with noise, under each of the models, and under Gaussians.

        ln p(x) >= ln mean_k exp(ln p(x | v_k) + ln p(v_k) - ln q(v_k))      # K samples v_k of q

    where:
      images: how many, at least two, for an interval. samples: K. batch_size: images that are sampled at once.

    The models are of the same data and the same noise. One with a single object is the baseline without a choice of
    parents. The noise is drawn once for all. The density of a pixel without noise would have no bound: most are
    exactly 0.

    Errors: `ConfigError` for models of other data or noise.
    Source: Burda et al. 2015, equation 8. Kiefer et al. 2022 measure nothing of this kind.
    """

    images: int = 1000
    samples: int = 50
    batch_size: int = 50

    source: typing.ClassVar[str] = "Burda et al. 2015, equation 8"
    metric: typing.ClassVar[str] = "log-likelihood of noisy images"
    unit: typing.ClassVar[str] = "nats per dimension"
    role: typing.ClassVar[type] = BoundsLikelihood
    models: typing.ClassVar[tuple[int, int | None]] = (1, None)

    def __post_init__(self):
        require_at_least(self, 2, "images")
        require_at_least(self, 1, "samples", "batch_size")

    def measured(self, subjects, command, progress):
        data, noise = _common(subjects)
        clean, noisy = noisy_images(data.open("test"), self.images, noise)
        count, numbers = len(clean), clean[0].size
        gaussian, independent = gaussian_likelihoods(data.open("train"), noisy, noise)
        models, choice, parents = {}, {}, {}
        progress.begin("likelihood", len(subjects) * count)
        for subject in subjects:
            logs = importance_weights(subject, clean, noisy, self.samples, self.batch_size, progress)
            estimates = log_mean_exp(logs)
            gains = estimates - gaussian
            models[subject.name] = {
                "bound": float(logs.mean()) / numbers,
                "importance": float(estimates.mean()) / numbers,
                "gain": float(gains.mean()) / numbers,
                "interval": float(np.diff(mean_interval(gains))[0]) / 2 / numbers,
            }
            parse = subject.model.predict(clean, batch_size=self.batch_size, verbose=0)["coefficients"]
            choice[subject.name] = float(parse.max(axis=-1).mean())
            parents[subject.name] = float(np.mean([len(set(row)) for row in parse.argmax(axis=-1)]))
        return LikelihoodReport(
            models=models,
            gaussian=float(gaussian.mean()) / numbers,
            independent=float(independent.mean()) / numbers,
            ceiling=-0.5 * math.log(2 * math.pi * math.e * noise**2),
            choice=choice,
            parents=parents,
            noise=noise,
            samples=self.samples,
            **of_test_images(data, count, command),
        )

    def rows(self, result):
        rows = [
            {
                self.unit: name,
                "lower bound": f"{values['bound']:.4f}",
                f"of {result.samples} samples": f"{values['importance']:.4f}",
                "above the Gaussian": f"{values['gain']:+.4f} (+- {values['interval']:.4f})",
                "surest parent": f"{result.choice[name]:.3f}",
                "parents": f"{result.parents[name]:.1f}",
            }
            for name, values in result.models.items()
        ]
        others = ("gaussian", "independent", "ceiling")
        column = f"of {result.samples} samples"
        return rows + [{self.unit: name, column: f"{getattr(result, name):.4f}"} for name in others]

    def draw(self, subjects, result):
        from capszoo.visualize import draw_parse, draw_samples

        first = subjects[0]
        split = first.recipe.data.open("test")
        pictures = split.batch(np.arange(min(8, len(split))), None)["images"]
        return {"parse": draw_parse(first.model, pictures), "samples": draw_samples(first.model)}


def _common(subjects):
    """Data and noise of all subjects. Errors: `ConfigError`."""
    require_names(subjects)
    conditions = {(subject.recipe.data, subject.recipe.model.noise) for subject in subjects}
    if len(conditions) != 1:
        raise ConfigError(
            f"models must have the same data and noise. Received: {sorted(map(str, conditions))}"
        )
    return conditions.pop()


def noisy_images(split, images, noise):
    """The first `images` of a split, and the same with noise of deviation `noise`, always the same noise."""
    clean = split.batch(np.arange(min(images, len(split))), None)["images"]
    draws = generator(0, Stream.FIXED, 1).standard_normal(clean.shape, dtype=np.float32)
    return clean, clean + noise * draws


def log_mean_exp(logs):
    """The logarithm of the mean over samples of the exponentials of `logs[K, N]`: `[N]`."""
    return np.logaddexp.reduce(logs, axis=0) - math.log(len(logs))


def importance_weights(subject, clean, noisy, samples, batch_size=50, progress=QUIET):
    """ln p(noisy | v) + ln p(v) - ln q(v) of samples v of q(v | clean): `[K, N]`, in nats.

    where:
      subject: a `Subject` whose architecture bounds the likelihood.
      clean, noisy: `[N, H, W, C]`.

    The samples are always the same; those of different batches differ.
    """
    columns = []
    for start in range(0, len(clean), batch_size):
        rows = slice(start, start + batch_size)
        weights = subject.recipe.model.log_importance_weights(
            subject.model, clean[rows], noisy[rows], samples, seed=start
        )
        columns.append(weights)
        progress.advance(weights.shape[1])
    return np.concatenate(columns, axis=1).astype("float64")


def gaussian_likelihoods(train, noisy, noise):
    """Log-densities of images `noisy[N, H, W, C]` under a Gaussian fitted to a split: with and without covariances.

    The covariance is that of the images without noise, and noise^2 more on its diagonal. Returns two arrays
    `[N]`, in nats.
    """
    images = np.concatenate([batch["images"] for batch in evaluation_batches(train, 1000)])
    images = images.reshape(len(images), -1).astype("float32")
    mean = images.mean(axis=0)
    images -= mean
    covariance = (images.T @ images).astype("float64") / len(images) + noise**2 * np.eye(len(mean))
    deviations = noisy.reshape(len(noisy), -1).astype("float64") - mean
    constant = len(mean) * math.log(2 * math.pi)
    lower = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(lower, deviations.T)
    full = -0.5 * ((whitened**2).sum(axis=0) + constant) - np.log(np.diag(lower)).sum()
    variances = np.diag(covariance)
    independent = -0.5 * ((deviations**2 / variances).sum(axis=1) + np.log(variances).sum() + constant)
    return full, independent
