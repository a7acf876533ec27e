"""The contract between a paper's network and everything else.

An architecture is a frozen dataclass of hyperparameters, registered with `capszoo.config.section("model", name)`. What
only some architectures can do is a role. Protocols, drawings, benchmarks and exports ask for the role and never for an
attribute or for a layer by its name:

    recipe.model.has(Reconstructs)
    require(recipe.model, InfersIteratively, "iterative inference")
"""

import abc
import typing

from capszoo.config import ConfigError, sections
from capszoo.models.network import ImageModel
from capszoo.progress import QUIET


class Architecture(abc.ABC):
    """A network of a paper, as its hyperparameters.

    where:
      paper: who it is from, e.g. "Sabour et al. 2017".
      routing: what routes, e.g. "dynamic"; "none" where nothing does.
      stages: names of the layers that say most, in the order of the data; what `features` of a bundle returns.
      head: prefixes of the paths of the weights that a new number of classes makes anew, each of at least one weight;
        empty where no layer knows how many classes there are.
      served: names of the outputs that a bundle returns, and by which published weights are checked.
      repeated: hyperparameters that say how often something is repeated, each time at the cost of another piece of the
        graph; see `capszoo.models.size`.
    """

    paper: typing.ClassVar[str]
    routing: str
    stages: tuple[str, ...]
    head: tuple[str, ...] = ()
    served: tuple[str, ...] = ("scores", "poses")
    repeated: typing.ClassVar[tuple[str, ...]] = ("num_iterations",)

    @abc.abstractmethod
    def build(self, image_shape, num_classes, labels_per_image=1):
        """The untrained inference model, as `network` makes it: `images` -> dict of outputs.

        Errors: `ValueError` for images that are too small.
        """

    @abc.abstractmethod
    def objective(self, model, labels_per_image=1):
        """What `model` is trained on, a `capszoo.models.Objective`.

        Errors: `ValueError` for more labels per image than the loss takes.
        """

    def network(self, images, outputs, labels_per_image=1) -> ImageModel:
        """The functional model from `images`, a symbolic input, to the dict `outputs`; it knows this architecture."""
        model = ImageModel(images, outputs, name=self.section_name)
        model.architecture, model.labels_per_image = self, labels_per_image
        return model

    def has(self, role) -> bool:
        """Whether this architecture, with these hyperparameters, plays a role."""
        return isinstance(self, role)


class Classifies(Architecture):
    """Its output `scores [B, classes]` is of classes, in [0, 1]; the highest is that of the class it predicts."""

    promise = "classifies"


class ShiftsScores(Classifies):
    """Its loss does not feel a number that is added to the logits of all its scores: training leaves it to chance."""

    promise = "is trained on the differences of its scores' logits"

    @abc.abstractmethod
    def shift(self, model, amount: float):
        """Adds `amount` to the logits of all scores of `model`, an inference model of this architecture."""


class Reconstructs(Architecture):
    """Its output `reconstruction` is an image, in [0, 1], that is made from what capsules say."""

    promise = "reconstructs"


class DecodesPoses(Reconstructs):
    """Its reconstruction is decoded from the poses of all its capsules, or of those that are selected."""

    promise = "decodes the poses of capsules"

    @abc.abstractmethod
    def decode(self, model, poses, selection):
        """Images `[B, N, H, W, C]` in [0, 1], as tensors.

        where:
          model: an inference model of this architecture.
          poses: `[B, O, D]`, as its output `poses`.
          selection: `[B, N, O]`, what each pose of each of N decodings is multiplied with, in [0, 1].
        """


class RoutesIteratively(Architecture):
    """Its routing runs `num_iterations` times, which does not change its weights.

    where:
      num_iterations: at least 1.
    """

    promise = "routes in iterations"
    num_iterations: int


class MasksByRank(Architecture):
    """Its capsules, which are no classes, are masked by the rank of their routing support, the output `scores`."""

    promise = "masks its capsules by their ranks"

    @abc.abstractmethod
    def ranks(self, model, support):
        """Ranks `[B, O]` of capsules with the routing support `[B, O]`, 0 for the one that is masked least."""


class ParsesParts(Architecture):
    """Its output `coefficients [B, parts, objects]` says which object each part of a grid over the image belongs to."""

    promise = "parses images into parts"

    @abc.abstractmethod
    def part_grid(self, model):
        """`(rows, columns)` of the parts."""


class ComposesTemplates(Architecture):
    """It generates images from objects that are made of parts, each of which draws a template."""

    promise = "composes images of templates"

    @abc.abstractmethod
    def selection(self, model):
        """The layer p(parts | objects), a `capszoo.layers.PartsFromObjects`."""

    @abc.abstractmethod
    def renderer(self, model):
        """The layer p(image | parts), a `capszoo.layers.TemplateRenderer`."""


class BoundsLikelihood(Architecture):
    """It generates images with noise, and bounds how likely an image is from below.

    where:
      noise: standard deviation of the noise that belongs to the data, > 0.
    """

    promise = "bounds the likelihood of images"
    noise: float

    @abc.abstractmethod
    def log_importance_weights(self, model, clean, noisy, samples, seed=0):
        """ln p(noisy | v) + ln p(v) - ln q(v) of samples v of q(v | clean): `[samples, B]`, in nats.

        where:
          model: an inference model of this architecture.
          clean, noisy: `[B, H, W, C]`.
          seed: what the samples follow from.
        """

    @abc.abstractmethod
    def sample(self, model, count, seed=0):
        """Images `[count, H, W, C]` in [0, 1] that the model generates, without noise."""


class InfersIteratively(Architecture):
    """Its activities can be inferred by descending an energy, with or without a label."""

    promise = "infers its activities iteratively"

    @abc.abstractmethod
    def inference(self, model, **options):
        """A `capszoo.models.IterativeInference` over the stages of `model`; `options` are its own."""


class OptimisesLatents(Architecture):
    """The latent variables of an image can be optimised by themselves, starting at what the network infers."""

    promise = "optimises latent variables"

    @abc.abstractmethod
    def optimise_latents(self, model, images, steps=300, learning_rate=0.02, progress=QUIET):
        """Outputs for the optimised latents of `images[N, H, W, C]`, and the losses of each step.

        where:
          model: an inference model of this architecture. Its weights stay as they are.
          progress: advances by 1 with each step.
        """


def require(architecture, role, what: str):
    """Errors: `ConfigError`, naming the architectures that play it, unless `architecture` plays `role`.

    where:
      what: what needs the role, as the subject of a sentence.
    """
    if not architecture.has(role):
        known = sorted(name for name, cls in sections("model").items() if issubclass(cls, role))
        raise ConfigError(
            f"{what} needs an architecture that {role.promise}, such as {', '.join(known)}. "
            f"Received: {architecture}"
        )


def architecture_of(model, role, what: str) -> Architecture:
    """The architecture that has built `model`, and plays `role`.

    where:
      what: what needs the role, as the subject of a sentence.

    Errors: `ConfigError` for a model that no architecture has built, and see `require`.
    """
    if not isinstance(model, ImageModel) or model.architecture is None:
        raise ConfigError(f"{what} needs a model that an architecture has built. Received: {model.name!r}")
    require(model.architecture, role, what)
    return model.architecture
