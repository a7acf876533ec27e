"""The stacked capsule autoencoder of Kosiorek, Sabour, Teh and Hinton 2019."""

import dataclasses
import typing

import keras
from keras import ops

from capszoo.config import require_at_least, section
from capszoo.layers import (
    AttentionPooling,
    ObjectVotes,
    PartCapsules,
    PartElements,
    PresentSeedPooling,
    PresentSetAttention,
    SeparateDense,
    TemplateMixture,
    VoteMixture,
)
from capszoo.losses import ExplanationSparsity, NegativeLogDensity, PresenceSparsity, SquaredOutput
from capszoo.models.architecture import Reconstructs
from capszoo.models.network import ImageModel
from capszoo.models.objective import Objective

# Least side of an image that the four convolutions take.
LEAST_SIDE = 23


@section("model", "scae")
@dataclasses.dataclass(frozen=True)
class StackedCapsuleAutoencoder(Reconstructs):
    """Two autoencoders, one on top of the other: images are made of parts, and the poses of parts of objects.

        images [B, H, W, C]
        conv1 .. conv4     3x3, `channels`, strides 2, 2, 1, 1, no padding, ReLU
        part_numbers       attention pooling: a pose, `features` numbers and the logit of a presence for each part
        part_capsules      poses x_m, presences d_m and features z_m
        renderer           p(image | parts): each pixel is of one of the parts' templates, coloured by z_m
        elements           x_m, 1 - d_m, z_m and the template of each part, as a set
        embedding, set1 .. set3, encoding, seeds     set transformer, one element for each object
        object_hidden, object_code, vote_hidden, vote_numbers     two networks with a hidden layer for each object
        object_capsules    poses, presences, and votes for the poses of all parts
        owners             p(parts | objects): each part is of one of the objects

    Outputs: `presence [B, objects]`, those of the objects, in [0, 1], and `logits`, the logits of them; `explained [B,
    objects]`, which share of the parts each explains, in [0, 1]; `poses [B, objects, 2, 3]`, affine maps;
    `part_presence [B, parts]`; `part_poses [B, parts, 2, 3]`, affine maps; `coefficients [B, parts, 1 + objects]`, the
    share of each part in the clutter and in every object; `reconstruction [B, H, W, C]` in [0, 1], the mean of what
    parts say of each pixel. Noise is in training only. An object is no class: `num_classes` is not used.

    where:
      template_size: side of a template, in pixels of its own; a pose stretches it over up to the whole image.
      width, blocks, encoding: of the set transformer: units of its blocks, how many, and units of its seeds.
      units: of all hidden layers of objects; code: numbers that describe an object.
      pixel_deviation: of the normal distribution of a pixel; smaller, pictures count more beside objects.
      noise: of the logits of presences, see `PartCapsules` and `ObjectVotes`.
      classes: how many kinds of images there are; all that the loss is told of classes.
      learns: "all", or the "parts" alone, as a stage before may: pictures, of which objects learn nothing.
      offset_weight: what changes of the objects' shapes from image to image cost.
      presence_within, presence_between: see `PresenceSparsity`; explained_within, explained_between: see
        `ExplanationSparsity`.

    Parameters for 40x40x1: 3,535,483.
    Source: Kosiorek et al. 2019, sections 2.2 to 2.4; sizes and weights from the authors' script for MNIST.
    Differs from the authors' code: no noise in evaluation; see also `PresentAttention` and `VoteMixture`, which follow
    the paper where the code does not. Without biases that a softmax or another bias makes up for: 344 of attention and
    4,096 of a hidden layer that also sees a constant. Its two linear probes, which no capsule learns from, are a
    protocol here.
    """

    objects: int = 32
    parts: int = 40
    template_size: int = 11
    channels: int = 128
    features: int = 16
    width: int = 16
    blocks: int = 3
    encoding: int = 256
    units: int = 128
    code: int = 32
    pixel_deviation: float = 1.0
    noise: float = 2.0
    classes: int = 10
    learns: typing.Literal["all", "parts"] = "all"
    offset_weight: float = 10.0
    presence_within: float = 2.0
    presence_between: float = 0.35
    explained_within: float = 0.7
    explained_between: float = 0.2

    paper: typing.ClassVar[str] = "Kosiorek et al. 2019"
    routing: typing.ClassVar[str] = "set_transformer"
    stages: typing.ClassVar[tuple[str, ...]] = ("conv4", "part_capsules", "object_capsules")
    # No layer knows how many classes there are.
    head: typing.ClassVar[tuple[str, ...]] = ()
    served: typing.ClassVar[tuple[str, ...]] = ("presence", "poses")
    repeated: typing.ClassVar[tuple[str, ...]] = ("blocks",)

    def __post_init__(self):
        sizes = ("objects", "parts", "template_size", "channels", "features", "width", "blocks", "encoding")
        require_at_least(self, 1, *sizes, "units", "code", "classes")
        if not self.pixel_deviation > 0:
            raise ValueError(f"pixel_deviation must be positive. Received: {self.pixel_deviation}")
        weights = ("offset_weight", "presence_within", "presence_between")
        require_at_least(self, 0, "noise", *weights, "explained_within", "explained_between")

    def build(self, image_shape, num_classes=None, labels_per_image=1):
        """The inference model: `images` in [0, 1] -> dict of outputs.

        Errors: `ValueError` for images below 23x23.
        """
        if min(image_shape[:2]) < LEAST_SIDE:
            raise ValueError(
                f"images must be at least {LEAST_SIDE}x{LEAST_SIDE}. Received: {tuple(image_shape)}"
            )
        images = keras.Input(image_shape, name="images")
        poses, presence, logits, features = self._parts(images)
        renderer = TemplateMixture(
            self.parts, image_shape, self.template_size, self.pixel_deviation, name="renderer"
        )
        templates, reconstruction, _ = renderer(poses, logits, features, images)
        elements = PartElements(name="elements")(poses, presence, features, templates)
        objects = self._objects(*elements)
        owners = VoteMixture(name="owners")
        _, coefficients, explained = owners(*objects[3:6], poses, presence)
        outputs = {
            "presence": objects[1],
            "logits": objects[2],
            "explained": explained,
            "poses": objects[0],
            "part_presence": presence,
            "part_poses": poses,
            "coefficients": coefficients,
            "reconstruction": reconstruction,
        }
        return self.network(images, outputs)

    def _parts(self, images):
        """The outputs of `PartCapsules`."""
        features = images
        for number, strides in enumerate((2, 2, 1, 1), start=1):
            features = keras.layers.Conv2D(
                self.channels,
                3,
                strides,
                activation="relu",
                kernel_initializer="lecun_normal",
                name=f"conv{number}",
            )(features)
        numbers = AttentionPooling(self.parts, 7 + self.features, "lecun_normal", name="part_numbers")(
            features
        )
        return PartCapsules(self.noise, name="part_capsules")(numbers)

    def _objects(self, elements, presence):
        """The outputs of `ObjectVotes`."""

        def dense(units, name):
            return keras.layers.Dense(units, kernel_initializer="lecun_normal", name=name)

        elements = dense(self.width, "embedding")(elements)
        for number in range(1, self.blocks + 1):
            elements = PresentSetAttention(name=f"set{number}")(elements, presence)
        elements = dense(self.encoding, "encoding")(elements)
        objects = PresentSeedPooling(self.objects, self.encoding, name="seeds")(elements, presence)
        objects = SeparateDense(self.units, "relu", name="object_hidden")(objects)
        objects = SeparateDense(self.code, name="object_code")(objects)
        objects = SeparateDense(self.units, "relu", name="vote_hidden")(objects)
        # What does not depend on the image is left to the biases of `ObjectVotes`.
        numbers = SeparateDense(8 * self.parts + 7, use_bias=False, dtype="float32", name="vote_numbers")(
            objects
        )
        return ObjectVotes(self.parts, self.noise, name="object_capsules")(numbers)

    def objective(self, model, labels_per_image=1):
        """Minus the log-likelihoods of images given parts and of parts given objects, and sparsity. No label is seen.

        -log p(y) - log p(x, d) + `offset_weight` / 2 * |dynamic offsets|^2 + sparsity of presences and explanations
        """
        objects = model.get_layer("object_capsules").output
        part_density, _, explained = model.get_layer("owners").output
        outputs = {
            "image_density": model.get_layer("renderer").output[2],
            "part_density": part_density,
            "offsets": objects[6],
            "presence": objects[1],
            "explained": explained,
        }
        losses = {
            "image_density": NegativeLogDensity(),
            "part_density": NegativeLogDensity(),
            "offsets": SquaredOutput(self.offset_weight),
            "presence": PresenceSparsity(self.classes, self.presence_within, self.presence_between),
            "explained": ExplanationSparsity(self.explained_within, self.explained_between),
        }

        if self.learns == "parts":
            outputs, losses = ({"image_density": part["image_density"]} for part in (outputs, losses))

        def arrange(batch):
            images = batch["images"]
            nothing = {
                name: ops.zeros((ops.shape(images)[0], *output.shape[1:]), "float32")
                for name, output in outputs.items()
            }
            return {"images": images}, nothing

        return Objective(ImageModel({"images": model.input}, outputs), losses, {}, arrange)
