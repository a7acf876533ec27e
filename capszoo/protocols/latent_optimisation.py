"""What inference without a network finds that the network did not: in upright digits and in turned ones."""

import dataclasses
import typing

import numpy as np

from capszoo.config import ConfigError, section
from capszoo.models.architecture import OptimisesLatents
from capszoo.protocols.linear_probe import turned_digits
from capszoo.protocols.protocol import Protocol, get_protocol
from capszoo.protocols.report import MeasuredReport, of_test_images

UPRIGHT, TURNED = "upright", "turned"
# Samples whose mean is the bound: there is one in each step.
LAST = 10
COLUMNS = 10  # pictures side by side


@dataclasses.dataclass(frozen=True)
class Inference:
    """What is inferred of a set of images, by the network or by optimising it.

    where:
      loss: minus the evidence lower bound, in nats, mean over images and ten samples; of the optimisation those of its
        last ten steps, or of all where there are fewer.
      error: squared error of the reconstructions, as a share of that of black pictures.
      presences, poses: accuracy of a linear classifier on the logits of presences alone, and with poses; fitted to
        the network's outputs for the training images.
    """

    loss: float
    error: float
    presences: float
    poses: float


@dataclasses.dataclass(frozen=True)
class LatentOptimisationReport(MeasuredReport):
    """The network's inference beside latent optimisation, by condition: "upright", "turned".

    where:
      network, optimised: an `Inference` by condition.
      max_angle: of the turned digits, in degrees; steps, learning_rate: of the optimisation, see `OptimisesLatents`.
      turned: the fingerprint of the turned digits.
      model, step: of the network.
      outputs: by condition, the images, and the network's and the optimised outputs for them.
    """

    network: dict[str, Inference]
    optimised: dict[str, Inference]
    max_angle: float
    steps: int
    learning_rate: float
    turned: str
    model: str
    step: int | None
    outputs: dict = dataclasses.field(
        default_factory=dict, repr=False, compare=False, metadata={"drawn": True}
    )


@section("protocol", "latent_optimisation")
@dataclasses.dataclass(frozen=True)
class LatentOptimisationProtocol(Protocol):
    """The variables of each image optimised by themselves, beside those that the network infers, upright and turned.

    where:
      images: how many test images, the first ones, upright and turned; all are optimised at once.
      max_angle: each is turned by its own angle, uniform up to so many degrees either way.
      steps, learning_rate: of Adam, see `OptimisesLatents`.

    Errors: `ConfigError` for models of other data than upright MNIST.
    Source: Smith et al. 2020, section 2.4 and figure 3.
    """

    images: int = 100
    max_angle: float = 180.0
    steps: int = 300
    learning_rate: float = 0.02

    source: typing.ClassVar[str] = "Smith et al. 2020, section 2.4 and figure 3"
    metric: typing.ClassVar[str] = "evidence lower bound, reconstruction and accuracy"
    unit: typing.ClassVar[str] = "nats"
    role: typing.ClassVar[type] = OptimisesLatents

    def __post_init__(self):
        for name in ("images", "steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1. Received: {getattr(self, name)}")

    def data(self, recipe):
        if recipe.data.section_name != "mnist":
            raise ConfigError(
                f"latent optimisation is measured on MNIST. Received: {recipe.data.section_name!r}"
            )
        return recipe.data

    def measured(self, subjects, command, progress):
        (subject,) = subjects
        recipe, model = subject.recipe, subject.model
        data = self.data(recipe)
        splits = {UPRIGHT: data.open("test"), TURNED: turned_digits(recipe, self.max_angle).open("test")}
        fitting = data.open("train")
        classifiers = [get_protocol(name).fitted(model, fitting) for name in ("presence_probe", "probe")]
        outputs, network, optimised = {}, {}, {}
        progress.begin("latent optimisation", len(splits) * self.steps)
        for condition, split in splits.items():
            batch = split.batch(np.arange(min(self.images, len(split))), None)
            # At a learning rate of zero nothing moves away from what the network infers.
            guess = recipe.model.optimise_latents(model, batch["images"], LAST, learning_rate=0.0)
            found = recipe.model.optimise_latents(
                model, batch["images"], self.steps, self.learning_rate, progress
            )
            network[condition] = _inference(guess, batch, classifiers)
            optimised[condition] = _inference(found, batch, classifiers)
            outputs[condition] = batch["images"], guess.outputs, found.outputs
        return LatentOptimisationReport(
            network=network,
            optimised=optimised,
            max_angle=self.max_angle,
            steps=self.steps,
            learning_rate=self.learning_rate,
            turned=splits[TURNED].tested.fingerprint(),
            model=subject.name,
            step=subject.step,
            outputs=outputs,
            **of_test_images(data, len(batch["images"]), command),
        )

    def rows(self, result):
        inferences = {"network": result.network, f"{result.steps} steps": result.optimised}
        return [
            {
                "images": condition,
                "inference": inference,
                "loss, nats": f"{found[condition].loss:.1f}",
                "squared error": f"{found[condition].error:.1%}",
                "right on presences": f"{found[condition].presences:.1%}",
                "with poses": f"{found[condition].poses:.1%}",
            }
            for condition in result.network
            for inference, found in inferences.items()
        ]

    def draw(self, subjects, result):
        from capszoo.visualize import draw_free_form

        drawings = {}
        for condition, (shown, *found) in result.outputs.items():
            pictures = (shown, *(outputs["reconstruction"] for outputs in found))
            drawings[condition] = draw_free_form(*(each[:COLUMNS] for each in pictures))
        return drawings


def _inference(found, batch, classifiers):
    logits = found.outputs["logits"]
    both = np.concatenate([logits, found.outputs["poses"].reshape(len(logits), -1)], axis=-1)
    accuracies = [
        float((classifier.predict(features) == batch["labels"]).mean())
        for classifier, features in zip(classifiers, (logits, both), strict=True)
    ]
    error = ((found.outputs["reconstruction"] - batch["images"]) ** 2).sum() / (batch["images"] ** 2).sum()
    return Inference(float(found.losses[-LAST:].mean()), float(error), *accuracies)
