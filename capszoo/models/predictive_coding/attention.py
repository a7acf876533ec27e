"""The top-down attention model of Kiefer et al. 2022, fitted to images."""

import dataclasses
import typing

import keras
from keras import ops

from capszoo.config import require_at_least, section
from capszoo.data.preprocessing import grey_levels_to_unit
from capszoo.layers import GaussianCapsules, Patches, TopDownCapsules
from capszoo.layers.distributions import distributions
from capszoo.losses import SummedOutput
from capszoo.models.architecture import (
    BoundsLikelihood,
    ParsesParts,
    Reconstructs,
    RoutesIteratively,
)
from capszoo.models.fitting import check_images
from capszoo.models.network import ImageModel
from capszoo.models.objective import Objective
from capszoo.routing import AttentionRouting
from capszoo.routing.von_mises_fisher import LARGEST_ORDER


@section("model", "attention")
@dataclasses.dataclass(frozen=True)
class AttentionCapsNet(Reconstructs, BoundsLikelihood, ParsesParts, RoutesIteratively):
    """A generative model of images as patches that each have one parent among a few objects, and a net that inverts it.

        images [B, H, W, C]
        parts              patches of `patch` x `patch` pixels: m part capsules
        conv1, conv2       5x5, stride 2, `channels` and twice as many, ReLU
        hidden             fully connected, `hidden` units, ReLU
        object_capsules    q(v | image), of `hidden` and the pixels: means and deviations of the poses of n objects
        top_down           p(parts | v), equations 6 to 8, and the parse

    Generation: v_j ~ N(0, I) for each object; the objects predict every part; attention among the predictions gates a
    mixture of Gaussians around them; a part is drawn from the mixture. What is modelled is the density of noisy images,
    x + noise * e, e ~ N(0, I): the pixels of digits themselves are 0 so often that their density has no bound. It is
    learnt by its evidence lower bound, with amortised Gaussian posteriors:

        ln p(x) >= E_q[ sum_i ln p(x_i | v) ] - sum_j KL(q(v_j | image) || N(0, I))

    Outputs: `poses [B, n, object_dim]`, the means of q; `coefficients [B, m, n]`, the parse: the probability of each
    parent of each part, which sums to one over the objects; `scores [B, n]`, the share of the parts that an object is
    the parent of, in [0, 1]; `reconstruction [B, H, W, C]`, what parents predict of their parts, clipped to [0, 1].
    An object is no class: `num_classes` is not used.

    where:
      objects, object_dim: how many capsules generate, and the size of their poses. One object is the baseline without
        a choice of parents.
      patch: pixels; 4 gives 49 parts of 16 numbers for 28x28x1.
      num_iterations, accumulate: of the attention, see `AttentionRouting`.
      rule: of the gates, see `TopDownCapsules`.
      noise: standard deviation of the noise that belongs to the data, > 0.

    Parameters for 28x28x1: 1,323,332; 135,044 of them generate.
    Source: Kiefer et al. 2022, section 4, equations 4 to 8.
    Differs from the paper: it has no experiments on its model and leaves its inversion to future work. Parts, noise,
    prior, encoder and training are ours; see `TopDownCapsules` for the gates.
    """

    objects: int = 10
    object_dim: int = 16
    patch: int = 4
    channels: int = 32
    hidden: int = 256
    num_iterations: int = 3
    accumulate: bool = False
    rule: typing.Literal["log_density", "density"] = "log_density"
    noise: float = 0.1

    paper: typing.ClassVar[str] = "Kiefer et al. 2022"
    routing: typing.ClassVar[str] = "attention"
    stages: typing.ClassVar[tuple[str, ...]] = ("conv1", "conv2")
    # No layer knows how many classes there are.
    head: typing.ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        require_at_least(self, 1, "objects", "object_dim", "patch", "channels", "hidden", "num_iterations")
        if not self.noise > 0:
            raise ValueError(f"noise must be positive. Received: {self.noise}")

    def build(self, image_shape, num_classes=None, labels_per_image=1):
        """The inference model: `images` in [0, 1] -> dict of outputs.

        Errors: `ValueError` for images that are no whole number of patches high and wide, and for patches of one number
        or more than 32, on whose sphere the density is not known here.
        """
        if not 2 <= self.patch**2 * image_shape[2] <= 2 * (LARGEST_ORDER + 1):
            raise ValueError(
                f"a patch must have 2 to {2 * (LARGEST_ORDER + 1):g} numbers. Received: patches of {self.patch} x "
                f"{self.patch} pixels in {image_shape[2]} channels"
            )
        images = keras.Input(image_shape, name="images")
        patches = Patches(self.patch, name="parts")
        parts = patches(images)
        features = images
        for number in (1, 2):
            features = keras.layers.Conv2D(
                number * self.channels, 5, 2, padding="same", activation="relu", name=f"conv{number}"
            )(features)
        features = keras.layers.Flatten(name="flat")(features)
        features = keras.layers.Dense(self.hidden, activation="relu", name="hidden")(features)
        # The posterior of a linear model is linear in the pixels; what is not linear is for the layers to learn.
        pixels = keras.layers.Flatten(name="pixels")(images)
        features = keras.layers.Concatenate(name="features")([features, pixels])
        poses, _ = GaussianCapsules(self.objects, self.object_dim, name="object_capsules")(features)
        attention = AttentionRouting(self.num_iterations, self.accumulate, name="attention")
        blend, parse = TopDownCapsules(attention, self.noise, self.rule, name="top_down")(poses, parts)
        outputs = {
            "scores": ops.mean(parse, axis=1),
            "poses": poses,
            "coefficients": parse,
            "reconstruction": ops.clip(patches.assemble(blend), 0.0, 1.0),
        }
        return self.network(images, outputs)

    def objective(self, model, labels_per_image=1):
        """Minus the evidence lower bound, of one sample of each image, in nats. Labels are not looked at."""

        def arrange(batch):
            nothing = ops.zeros((ops.shape(batch["images"])[0], 2), "float32")
            return {"images": batch["images"]}, {"negative_bound": nothing}

        training = ImageModel({"images": model.input}, {"negative_bound": -self.bound(model)})
        return Objective(training, {"negative_bound": SummedOutput()}, {}, arrange)

    def log_importance_weights(self, model, clean, noisy, samples, seed=0):
        """See `BoundsLikelihood`. Any q gives a bound, also one that has seen the image without its noise."""
        check_images(model, clean)
        bound = EvidenceBound(model.get_layer("top_down"), seed, name="importance")
        encoder = keras.Model(model.input, model.get_layer("object_capsules").output)
        parts = model.get_layer("parts")(noisy)
        posterior = encoder(grey_levels_to_unit(clean))
        terms = [bound(*posterior, parts, noisy=False) for _ in range(samples)]
        return ops.convert_to_numpy(ops.sum(ops.stack(terms), axis=-1))

    def sample(self, model, count, seed=0):
        """See `BoundsLikelihood`."""
        return sample_images(model, count, seed)[0]

    def part_grid(self, model):
        """See `ParsesParts`."""
        return model.get_layer("parts").grid[:2]

    def bound(self, model):
        """The tensor `[B, 2]` of `model`'s graph: the terms of the evidence lower bound, of one sample."""
        parts, posterior = (model.get_layer(name).output for name in ("parts", "object_capsules"))
        return EvidenceBound(model.get_layer("top_down"), name="bound")(*posterior, parts)


@keras.saving.register_keras_serializable(package="capszoo")
class EvidenceBound(keras.layers.Layer):
    """What one sample of each posterior says of the evidence: two terms `[B, 2]`, in nats.

        ln p(x | v),   ln p(v) - ln q(v),   v = m + s * e,  x = parts + noise * e'

    where:
      m, log s: `[B, n, D]`, of q(v | image); p(v) = N(0, I).
      parts: `[B, m, d]`, without noise; `noisy=False` takes them as they come.
      top_down: the `TopDownCapsules` that are p(x | v).
      seed: what all e follow from; None draws other ones each time that a layer is made.

    The mean of their sum over samples is the evidence lower bound; the logarithm of the mean of its exponentials over K
    samples is another bound, which comes the nearer the more samples there are (Burda et al. 2015, equation 8).
    """

    def __init__(self, top_down, seed=None, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.top_down, self.seed = top_down, seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, means, log_deviations, parts, noisy=True):
        normal = distributions().Normal
        deviations = ops.exp(log_deviations)
        poses = means + deviations * self._noise(means)
        if noisy:
            parts = parts + self.top_down.noise * self._noise(parts)
        likelihood = self.top_down.distribution(poses).log_prob(parts)
        ratio = normal(0.0, 1.0).log_prob(poses) - normal(means, deviations).log_prob(poses)
        return ops.stack([likelihood, ops.sum(ratio, axis=(1, 2))], axis=-1)

    def compute_output_spec(self, means, *_, **__):
        # Of an unknown batch TensorFlow Probability makes nothing under JAX.
        return keras.KerasTensor((means.shape[0], 2), dtype="float32")

    def get_config(self):
        top_down = keras.saving.serialize_keras_object(self.top_down)
        return {**super().get_config(), "top_down": top_down, "seed": self.seed}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["top_down"] = keras.saving.deserialize_keras_object(config["top_down"])
        return cls(**config)

    def _noise(self, like):
        return keras.random.normal(ops.shape(like), dtype=like.dtype, seed=self.seed_generator)


def sample_images(model, count, seed=0):
    """Images `[count, H, W, C]` that `model` generates, clipped to [0, 1], and who the parents were `[count, m, n]`.

    A parent of each part is drawn from the gates, and the part is what its parent predicts: the noise is left out.
    """
    top_down, patches = model.get_layer("top_down"), model.get_layer("parts")
    objects, depth = top_down.kernel.shape[:2]
    seeds = keras.random.SeedGenerator(seed)
    poses = keras.random.normal((count, objects, depth), dtype="float32", seed=seeds)
    predictions = top_down.predictions(poses)
    gates = top_down.log_gates(predictions)
    flat = ops.reshape(gates, (-1, objects))
    parents = ops.one_hot(keras.random.categorical(flat, 1, seed=seeds)[:, 0], objects)
    parents = ops.reshape(parents, ops.shape(gates))
    parts = ops.sum(ops.expand_dims(parents, -1) * ops.swapaxes(predictions, 1, 2), axis=2)
    images = ops.clip(patches.assemble(parts), 0.0, 1.0)
    return ops.convert_to_numpy(images), ops.convert_to_numpy(parents)
