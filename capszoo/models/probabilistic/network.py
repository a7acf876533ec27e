"""The probabilistic generative capsule network of Smith, Schut, Gal and van der Wilk 2020."""

import dataclasses
import typing

import keras

from capszoo.config import require_at_least, section
from capszoo.layers import (
    AttentionPooling,
    Divergence,
    InducedSetAttention,
    Named,
    PartsFromObjects,
    SampledCapsules,
    SeedPooling,
    TemplateRenderer,
)
from capszoo.layers.generative import ScatteredCapsules
from capszoo.models.architecture import ComposesTemplates, OptimisesLatents, Reconstructs
from capszoo.models.bound import bound_objective
from capszoo.models.probabilistic.clusters import objects_from_clusters
from capszoo.models.probabilistic.convolutions import convolutions
from capszoo.models.probabilistic.latent_optimisation import optimise_latents
from capszoo.models.probabilistic.sleep_phase import sleep_objective
from capszoo.progress import QUIET

# Of the two rows of an affine map.
POSE = (2, 3)
# log standard deviation that a Gaussian posterior starts with: near the Delta solution it may be started from.
FIRST_LOG_DEVIATION = -4.0


@section("model", "probabilistic")
@dataclasses.dataclass(frozen=True)
class ProbabilisticCapsNet(Reconstructs, ComposesTemplates, OptimisesLatents):
    """A generative model of images as objects made of parts made of templates, and a network that infers them.

        images [B, H, W, C]
        conv1 .. conv4     3x3, `channels`, strides 2, 2, 1, 1, ELU
        part_parameters    attention pooling: a pose and the logit of a presence for each part
        part_capsules      parts drawn from q(parts | image)
        set1 .. set4       the parts as a set: pose, presence, and a learned name for each
        seeds              PMA, one element for each object; `encoding` numbers of each
        object_poses, object_logits     one hidden layer each
        object_capsules    objects drawn from q(objects | parts)
        selection          p(parts | objects)
        renderer           p(image | parts): templates under the parts' poses, one over the other

    Outputs: `scores [B, objects]`, the presences of the objects, in [0, 1], and `logits`, the logits of them; `poses
    [B, objects, 2, 3]`, affine maps less the identity; `part_presence [B, parts]`; `part_poses [B, parts, 2, 3]`,
    affine maps; `coefficients [B, parts, 1 + objects]`, the share of each part in the clutter and in every object;
    `reconstruction [B, H, W, C]` in [0, 1]. All are those of the middle of q; samples are drawn in training only. An
    object is no class: `num_classes` is not used.

    where:
      posterior: what q says of poses: "delta", a point, or "gaussian", which learns only when it is started from the
        weights of the former (section 2.3): by a stage before, or `train.start_from`.
      presence: p, how likely an object is present; clutter: rho_0, how strongly the clutter draws parts.
      clutter_deviation, off_deviation: of the poses of parts in the clutter, and of parts that are not there;
        least_deviation: of the poses of parts in an object.
      temperature: of all relaxed presences.
      pixel_deviation: sigma of equation 7.
      learns: "bound", everything, from the images; or "sleep", which the paper has not: the inference network alone,
        from what the generative model draws of turned objects, once it has learnt the bound in a stage before. See
        `capszoo.models.probabilistic.sleep_phase`.
      sleep_angle: how far capsules are turned at most, in degrees.

    Parameters for 28x28x1: 8,400 of the generative model, 666,711 of the inference network.
    Source: Smith et al. 2020, sections 2 and 4, appendix B; no code was published.
    Differs from the paper: it does not say how parts are distinguished in the set (here by a learned name), the padding
    ("same"), nor p, rho_0, the deviations and initial values; see also the layers.
    """

    objects: int = 16
    parts: int = 16
    template_size: int = 12
    channels: int = 32
    units: int = 128
    heads: int = 4
    points: int = 32
    blocks: int = 4
    encoding: int = 32
    posterior: typing.Literal["delta", "gaussian"] = "delta"
    presence: float = 0.1
    clutter: float = 0.01
    clutter_deviation: float = 1.0
    off_deviation: float = 1.0
    least_deviation: float = 0.1
    temperature: float = 1.0
    pixel_deviation: float = 0.2
    learns: typing.Literal["bound", "sleep"] = "bound"
    sleep_angle: float = 180.0

    paper: typing.ClassVar[str] = "Smith et al. 2020"
    routing: typing.ClassVar[str] = "variational"
    stages: typing.ClassVar[tuple[str, ...]] = ("conv4", "part_capsules", "object_capsules")
    # No layer knows how many classes there are.
    head: typing.ClassVar[tuple[str, ...]] = ()
    repeated: typing.ClassVar[tuple[str, ...]] = ("blocks",)

    def has(self, role) -> bool:
        """See `Architecture.has`; latents are optimised as points, so only those of Delta posteriors can be."""
        return super().has(role) and (self.posterior == "delta" or role is not OptimisesLatents)

    def __post_init__(self):
        require_at_least(
            self, 1, "objects", "parts", "template_size", "channels", "points", "blocks", "encoding"
        )
        positive = ("clutter", "clutter_deviation", "off_deviation", "least_deviation", "pixel_deviation")
        for name in (*positive, "temperature"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive. Received: {getattr(self, name)}")
        if not 0 < self.presence < 1:
            raise ValueError(f"presence must be in (0, 1). Received: {self.presence}")
        if not 0 <= self.sleep_angle <= 180:
            raise ValueError(f"sleep_angle must be from 0 to 180. Received: {self.sleep_angle}")
        if self.learns == "sleep" and self.posterior != "delta":
            raise ValueError(f"learns='sleep' needs posterior='delta'. Received: {self.posterior!r}")
        if self.heads < 1 or self.units % self.heads:
            raise ValueError(f"heads must divide units, {self.units}. Received: {self.heads}")

    def build(self, image_shape, num_classes=None, labels_per_image=1):
        """The inference model: `images` in [0, 1] -> dict of outputs.

        Errors: `ValueError` for images below 4x4.
        """
        if min(image_shape[:2]) < 4:
            raise ValueError(f"images must be at least 4x4. Received: {tuple(image_shape)}")
        images = keras.Input(image_shape, name="images")
        parts = self._parts(convolutions(images, self.channels))
        objects = self._objects(parts)
        selection = PartsFromObjects(
            self.objects,
            self.parts,
            self.temperature,
            self.clutter,
            self.clutter_deviation,
            self.off_deviation,
            self.least_deviation,
            name="selection",
        )
        _, coefficients = selection(objects[0], objects[2], parts[0], parts[2])
        renderer = TemplateRenderer(self.parts, image_shape, self.template_size, name="renderer")
        outputs = {
            "scores": objects[1],
            "logits": objects[2],
            "poses": objects[0],
            "part_presence": parts[1],
            "part_poses": parts[0],
            "coefficients": coefficients,
            "reconstruction": renderer(parts[0], parts[1]),
        }
        return self.network(images, outputs)

    def _parts(self, features):
        """The outputs of `SampledCapsules`, of q(parts | image)."""
        parameters = AttentionPooling(
            self.parts,
            7,
            bias_initializer=ScatteredCapsules(),
            name="part_parameters",
        )(features)
        poses = keras.layers.Reshape((self.parts, *POSE), dtype="float32", name="part_poses")(
            parameters[..., :6]
        )
        deviations = []
        if self.posterior == "gaussian":
            deviations = [
                keras.layers.Reshape((self.parts, *POSE), dtype="float32", name="part_log_deviations")(
                    AttentionPooling(
                        self.parts,
                        6,
                        keras.initializers.VarianceScaling(0.01),
                        keras.initializers.Constant(FIRST_LOG_DEVIATION),
                        name="part_deviations",
                    )(features)
                )
            ]
        return SampledCapsules(self.temperature, name="part_capsules")(poses, parameters[..., 6], *deviations)

    def _objects(self, parts):
        """The outputs of `SampledCapsules`, of q(objects | parts)."""
        poses, presence = parts[:2]
        flat = keras.layers.Reshape((self.parts, 6), dtype="float32", name="part_matrices")(poses)
        single = keras.layers.Reshape((self.parts, 1), dtype="float32", name="part_presences")(presence)
        elements = keras.layers.Concatenate(dtype="float32", name="part_elements")([flat, single])
        elements = keras.layers.Dense(self.units, name="embedding")(elements)
        elements = Named(name="part_names")(elements)
        for number in range(1, self.blocks + 1):
            elements = InducedSetAttention(self.units, self.heads, self.points, name=f"set{number}")(elements)
        seeds = SeedPooling(self.objects, self.units, self.heads, name="seeds")(elements)
        encoding = keras.layers.Dense(self.encoding, name="encoding")(seeds)
        changes = self._head(encoding, 6, "object_poses")
        logits = self._head(encoding, 1, "object_logits")[..., 0]
        deviations = []
        if self.posterior == "gaussian":
            deviations = [self._head(encoding, 6, "object_deviations", FIRST_LOG_DEVIATION)]
        inputs = [
            keras.layers.Reshape((self.objects, *POSE), dtype="float32", name=f"object_matrices{i}")(part)
            for i, part in enumerate((changes, *deviations), start=1)
        ]
        return SampledCapsules(self.temperature, name="object_capsules")(inputs[0], logits, *inputs[1:])

    def _head(self, encoding, values, name, bias=0.0):
        """One hidden layer between the encoding of an object and some numbers about it."""
        hidden = keras.layers.Dense(self.units, activation="relu", name=f"{name}_hidden")(encoding)
        return keras.layers.Dense(
            values,
            kernel_initializer=keras.initializers.VarianceScaling(0.1),
            bias_initializer=keras.initializers.Constant(bias),
            dtype="float32",
            name=name,
        )(hidden)

    def selection(self, model):
        """See `ComposesTemplates`."""
        return model.get_layer("selection")

    def renderer(self, model):
        """See `ComposesTemplates`."""
        return model.get_layer("renderer")

    def objective(self, model, labels_per_image=1):
        """Minus the evidence lower bound, of one sample of each image; or `sleep_objective`. No label is looked at.

        Where a run starts from parts that were learnt with other objects, objects begin as clusters of images.
        """
        if self.learns == "sleep":
            return sleep_objective(model, self.build(model.input_shape[1:]), self.sleep_angle)

        def begin(split, fresh):
            others = {weight.path for weight in model.weights} - set(fresh)
            if others and model.get_layer("selection").offsets.path in fresh:
                objects_from_clusters(model, split)

        objective = bound_objective(model, self.divergence(model), self.pixel_deviation)
        return dataclasses.replace(objective, begin=begin)

    def optimise_latents(self, model, images, steps=300, learning_rate=0.02, progress=QUIET):
        """See `OptimisesLatents` and `capszoo.models.probabilistic.latent_optimisation`."""
        return optimise_latents(self, model, images, steps, learning_rate, progress)

    def divergence(self, model):
        """The tensor `[B, objects + parts]` of `model`'s graph: what each capsule of its sample costs."""
        objects, parts = (model.get_layer(name).output for name in ("object_capsules", "part_capsules"))
        part_density, _ = model.get_layer("selection").output
        return self.divergence_layer()(objects[0], objects[2], objects[3], parts[3], part_density)

    def divergence_layer(self):
        """The `Divergence` of this model's priors."""
        return Divergence(self.presence, self.temperature, name="divergence")
