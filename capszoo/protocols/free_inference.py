"""What inference without a network finds that the network did not: in upright digits and in turned ones."""

import dataclasses

import numpy as np

from capszoo.config import ConfigError
from capszoo.models.probabilistic.latent_optimisation import optimise_latents
from capszoo.progress import QUIET
from capszoo.protocols.linear_probe import fitted_probe, turned_digits
from capszoo.protocols.report import MeasuredReport, of_test_images

UPRIGHT, TURNED = "upright", "turned"
# Samples whose mean is the bound: there is one in each step.
LAST = 10


@dataclasses.dataclass(frozen=True)
class Inference:
    """What is inferred of a set of images, by the network or freely.

    where:
      loss: minus the evidence lower bound, in nats, mean over images and ten samples; free inference's are those of
        its last ten steps, or of all where there are fewer.
      error: squared error of the reconstructions, as a share of that of black pictures.
      presences, poses: accuracy of a linear classifier on the logits of presences alone, and with poses; fitted to
        the network's answers of the training images.
    """

    loss: float
    error: float
    presences: float
    poses: float


@dataclasses.dataclass(frozen=True)
class FreeInferenceReport(MeasuredReport):
    """The network's inference beside free-form inference, by condition: "upright", "turned".

    where:
      network, free: an `Inference` by condition.
      max_angle: of the turned digits, in degrees; steps, learning_rate: of free inference, see `infer_freely`.
      turned: the fingerprint of the turned digits.
      model, step: of the network.
    """

    network: dict[str, Inference]
    free: dict[str, Inference]
    max_angle: float
    steps: int
    learning_rate: float
    turned: str
    model: str
    step: int | None


def measure_free_inference(
    subject, images=100, *, max_angle=180.0, steps=300, learning_rate=0.02, command="", progress=QUIET
):
    """A `FreeInferenceReport`, and by condition the images with both answers: `(images, network, free)`.

    where:
      subject: a `Subject` with a model for digits whose posteriors are Delta, such as 'probabilistic'.
      images: how many test images, the first ones, upright and turned; all are optimised at once.
      max_angle: each is turned by its own angle, uniform up to so many degrees either way.
      progress: counts steps.

    Errors: `ConfigError` for other models, for models of other data than upright MNIST, and for fewer than one image
    or step.
    Source: Smith et al. 2020, section 2.4 and figure 3.
    """
    recipe, model = subject.recipe, subject.model
    if getattr(recipe.model, "posterior", None) != "delta":
        raise ConfigError(
            f"free inference needs 'probabilistic' with Delta posteriors. Received: {recipe.model}"
        )
    if recipe.data.section_name != "mnist":
        raise ConfigError(f"free inference is measured on MNIST. Received: {recipe.data.section_name!r}")
    for name, value in (("images", images), ("steps", steps)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1. Received: {value}")
    splits = {UPRIGHT: recipe.data.open("test"), TURNED: turned_digits(recipe, max_angle).open("test")}
    fitting = recipe.data.open("train")
    classifiers = [fitted_probe(model, fitting, presence_only) for presence_only in (True, False)]
    answers, network, free = {}, {}, {}
    progress.begin("latent optimisation", len(splits) * steps)
    for condition, split in splits.items():
        batch = split.batch(np.arange(min(images, len(split))), None)
        # At a learning rate of zero nothing moves away from the network's answer.
        guess = optimise_latents(recipe.model, model, batch["images"], LAST, learning_rate=0.0)
        found = optimise_latents(recipe.model, model, batch["images"], steps, learning_rate, progress)
        network[condition] = _judge(guess, batch, classifiers)
        free[condition] = _judge(found, batch, classifiers)
        answers[condition] = batch["images"], guess.outputs, found.outputs
    report = FreeInferenceReport(
        network=network,
        free=free,
        max_angle=max_angle,
        steps=steps,
        learning_rate=learning_rate,
        turned=splits[TURNED].fingerprint(),
        model=subject.name,
        step=subject.step,
        **of_test_images(recipe.data, len(batch["images"]), command),
    )
    return report, answers


def _judge(found, batch, classifiers):
    logits = found.outputs["logits"]
    both = np.concatenate([logits, found.outputs["poses"].reshape(len(logits), -1)], axis=-1)
    accuracies = [
        float((classifier.predict(features) == batch["labels"]).mean())
        for classifier, features in zip(classifiers, (logits, both), strict=True)
    ]
    error = ((found.outputs["reconstruction"] - batch["images"]) ** 2).sum() / (batch["images"] ** 2).sum()
    return Inference(float(found.losses[-LAST:].mean()), float(error), *accuracies)
