"""The unsupervised capsule network of Rawlinson et al. 2018, sparse or unmasked."""

import dataclasses
import typing

import keras
from keras import ops

from capszoo.config import require_at_least, section
from capszoo.layers import Decoder, LatentCapsules, MaskCapsules, PrimaryCapsules, SparseMask
from capszoo.losses import ReconstructionLoss
from capszoo.models.architecture import DecodesPoses, MasksByRank, RoutesIteratively
from capszoo.models.network import ImageModel
from capszoo.models.objective import Objective
from capszoo.routing import DynamicRouting


@section("model", "sparse")
@dataclasses.dataclass(frozen=True)
class SparseCapsNet(DecodesPoses, MasksByRank, RoutesIteratively):
    """The network of Sabour et al. 2017 without labels: latent capsules that learn to reconstruct the image.

        images [B, H, W, C]
        conv1             9x9, `channels`, stride 1, ReLU
        primary_capsules  9x9, stride 2: `primary_types` x `primary_dim` per position
        latent_capsules   every child votes for every latent capsule; routing
        sparse_mask       1 for the capsule with the largest routing support, less for the next, 0 for most
        decoder           of all latent capsules times the mask

    Outputs: `scores [B, latent_capsules]`, the routing support of each capsule, in [0, 1]; `poses [B, latent_capsules,
    latent_dim]`, unmasked; `presence [B, latent_capsules]`, the mask, in [0, 1]; `reconstruction [B, H, W, C]`, in
    [0, 1]. Poses times presence are the paper's v', the output of its latent layer. A latent capsule is no class:
    `num_classes` is not used, and what the capsules know of classes a protocol finds out.

    where:
      latent_capsules: their number, at least 2.
      num_iterations: softmaxes of the routing.
      gamma: sparsity of the mask, see `SparseMask`; 0 leaves all capsules unmasked, see `UnmaskedCapsNet`.
      support: "paper" or "code", see `LatentCapsules`.
      frequencies: how often a capsule should win, see `SparseMask`; (0.03, 0.12) by default in the authors' code.
      boost_step: how fast capsules are boosted, see `SparseMask`.
      primary_scale: factor before the primary squash; None is the authors' 1 / primary_types.

    Trainable parameters for 28x28x1: 9,149,712; for 40x40x1: 17,064,000. A mask has 33 numbers more.
    Source: Rawlinson et al. 2018, section 2; layers, initial weights and loss from the authors' code.
    Differs from the paper: `poses` are not masked. The authors' code fits its classifier on them, the paper's text
    on v'.
    """

    channels: int = 256
    primary_types: int = 32
    primary_dim: int = 8
    primary_scale: float | None = None
    latent_capsules: int = 16
    latent_dim: int = 16
    num_iterations: int = 3
    gamma: float = 12.0
    support: typing.Literal["paper", "code"] = "paper"
    frequencies: tuple[float, float] = (0.04, 0.1)
    boost_step: float = 0.1

    paper: typing.ClassVar[str] = "Rawlinson et al. 2018"
    routing: typing.ClassVar[str] = "dynamic"
    # No layer knows how many classes there are.
    head: typing.ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        require_at_least(self, 1, "channels", "primary_types", "primary_dim", "latent_dim", "num_iterations")
        require_at_least(self, 2, "latent_capsules")
        # What the mask refuses is refused here already, before anything is built.
        self._mask()

    def _mask(self):
        return SparseMask(self.gamma, self.frequencies, self.boost_step, name="sparse_mask")

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the layers that say most; a mask that is one everywhere says nothing."""
        capsules = ("conv1", "primary_capsules", "latent_capsules")
        return (*capsules, "sparse_mask") if self.gamma else capsules

    def build(self, image_shape, num_classes=None, labels_per_image=1):
        """The inference model: `images` in [0, 1] -> dict of outputs.

        Errors: `ValueError` for images too small for the two 9x9 convolutions.
        """
        if min(image_shape[:2]) < 17:
            raise ValueError(f"images must be at least 17x17. Received: {tuple(image_shape)}")
        images = keras.Input(image_shape, name="images")
        features = keras.layers.Conv2D(
            self.channels,
            9,
            activation="relu",
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.05),
            bias_initializer=keras.initializers.Constant(0.1),
            name="conv1",
        )(images)
        scale = 1.0 / self.primary_types if self.primary_scale is None else self.primary_scale
        primary = PrimaryCapsules(
            self.primary_types, self.primary_dim, 9, 2, scale=scale, name="primary_capsules"
        )(features)
        routing = DynamicRouting(self.num_iterations, name="routing")
        poses, support = LatentCapsules(
            self.latent_capsules, self.latent_dim, routing, self.support, name="latent_capsules"
        )(primary)
        presence = self._mask()(support)
        # [B, L] -> [B, 1, L]: one reconstruction, of all capsules at once
        selection = keras.layers.Reshape((1, self.latent_capsules), dtype="float32", name="selection")(
            presence
        )
        decoded = Decoder(image_shape, name="decoder")(MaskCapsules(name="mask")(poses, selection))
        reconstruction = keras.layers.Reshape(image_shape, name="reconstruction", dtype="float32")(decoded)
        outputs = {
            "scores": support,
            "poses": poses,
            "presence": presence,
            "reconstruction": reconstruction,
        }
        return self.network(images, outputs)

    def decode(self, model, poses, selection):
        """See `DecodesPoses`."""
        return model.get_layer("decoder")(model.get_layer("mask")(poses, selection))

    def ranks(self, model, support):
        """See `MasksByRank`; of boosted support, where the mask boosts."""
        return model.get_layer("sparse_mask").ranks(ops.convert_to_tensor(support))

    def objective(self, model, labels_per_image=1):
        """Squared error of the reconstruction, summed over pixels. Labels are not looked at."""

        def arrange(batch):
            return {"images": batch["images"]}, {"reconstruction": batch["images"]}

        inputs, outputs = {"images": model.input}, {"reconstruction": model.output["reconstruction"]}
        losses = {"reconstruction": ReconstructionLoss(weight=1.0)}
        return Objective(ImageModel(inputs, outputs), losses, {}, arrange)


@section("model", "unmasked")
@dataclasses.dataclass(frozen=True)
class UnmaskedCapsNet(SparseCapsNet):
    """The ablation of `SparseCapsNet`: gamma = 0, so that no capsule is masked and none is boosted.

    Source: Rawlinson et al. 2018, section 2.1 ("dense unsupervised capsules").
    """

    gamma: float = 0.0
