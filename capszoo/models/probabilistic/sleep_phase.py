"""The sleep phase: the network infers turned capsules again from what the generative model draws of them.

A network that has seen upright digits only infers others badly. But the generative model knows no upright: where an
object is turned its parts are turned with it (equation 5 of Smith et al. 2020). So the capsules that a trained network
inferred of an image are turned and drawn, and the network learns to infer them again from the drawing, as in the sleep
phase of Hinton et al. 1995. No turned image is ever looked at.
"""

import math

import keras
import numpy as np
from keras import ops

from capszoo.config import ConfigError
from capszoo.layers.generative import compose, identity
from capszoo.losses import SummedOutput
from capszoo.models.objective import Objective

# Deviations that what is inferred may have from what should be. In the wake phase an image is drawn again from its
# parts, which takes exact ones; in the sleep phase parts only have to lead to the objects.
WAKE_DEVIATION, SLEEP_DEVIATION = 0.2, 1.0
OBJECT_DEVIATION, LOGIT_DEVIATION = 0.3, 0.5


def sleep_objective(model, generator, max_angle):
    """`CapsuleMatchingLoss` of generated images and of the images themselves, as an `Objective`, without labels.

    where:
      model: the inference model of a `ProbabilisticCapsNet`, which learns; its generative layers do not.
      generator: another one of the same architecture, which gets the weights that `model` begins with and keeps them.
        If it learnt too, both would soon agree on one object for every image.
      max_angle: capsules are turned by up to so many degrees either way.

    What should be inferred is the middle of q; what is inferred has passed through samples of the parts' presences, as
    in the training of the bound. A run begins with a `ConfigError` unless all weights have been learnt before.
    """
    images = keras.Input(model.input_shape[1:], name="images")
    awake, generated, turned = SleepSamples(generator, max_angle, name="samples")(images)
    inference = middle_of(model, name="inference")
    outputs = {
        "awake": CapsuleMatchingLoss(WAKE_DEVIATION, name="awake_matching")(awake, inference(images)),
        "sleep": CapsuleMatchingLoss(SLEEP_DEVIATION, name="sleep_matching")(turned, inference(generated)),
    }

    def arrange(batch):
        nothing = np.zeros((len(batch["images"]), 4), "float32")
        return {"images": batch["images"]}, dict.fromkeys(outputs, nothing)

    def begin(split, fresh):
        if fresh:
            raise ConfigError(
                "the sleep phase is for a network that has learnt the bound: in a stage before, or train.start_from. "
                f"Random are {fresh[0]} and {len(fresh) - 1} other weights."
            )
        generator.set_weights(model.get_weights())

    training = keras.Model({"images": images}, outputs)
    losses = {name: SummedOutput() for name in outputs}
    return Objective(training, losses, {}, arrange, begin)


def middle_of(model, name):
    """The middle of q: `images` -> `(part_poses, part_logits, object_poses, object_logits)`, as a model."""
    variables = []
    for layer in (model.get_layer("part_capsules"), model.get_layer("object_capsules")):
        poses, logits = layer.input[:2]
        variables += [poses, logits / layer.temperature]
    return keras.Model(model.input, variables, name=name)


@keras.saving.register_keras_serializable(package="capszoo")
class SleepSamples(keras.layers.Layer):
    """What a network infers of images, and pictures of it turned about their middle.

        A_j -> R A_j,  I + A_i -> R (I + A_i)

    where:
      generator: an inference model of a `ProbabilisticCapsNet`. It never learns.
      A_j: parts `[B, N, 2, 3]`, affine maps; A_i: objects `[B, O, 2, 3]`, less the identity.
      R: of each image a rotation by its own angle, uniform in +-`max_angle` degrees; outside training none.

    Returns `(awake, generated, turned)`: the `middle_of` q for `images[B, H, W, C]`, what is drawn of its parts when
    they are turned `[B, H, W, C]`, and the middle with turned poses.
    """

    def __init__(self, generator, max_angle=180.0, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.generator, self.max_angle = generator, max_angle
        self.generator.trainable = False
        self.middle = middle_of(generator, name="middle")
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, images, training=False):
        part_poses, part_logits, object_poses, object_logits = awake = self.middle(images, training=False)
        turned_parts, turned_objects = part_poses, object_poses
        if training:
            turn = self._turns(ops.shape(images)[0])
            turned_parts = compose(turn, part_poses)
            turned_objects = compose(turn, object_poses + identity()) - identity()
        generated = self.generator.get_layer("renderer")(turned_parts, ops.sigmoid(part_logits))
        return awake, generated, [turned_parts, part_logits, turned_objects, object_logits]

    def _turns(self, count):
        """Rotations `[count, 1, 2, 3]`."""
        limit = math.radians(self.max_angle)
        angles = keras.random.uniform((count, 1), -limit, limit, "float32", self.seed_generator)
        cosine, sine, zero = ops.cos(angles), ops.sin(angles), ops.zeros_like(angles)
        rows = (cosine, -sine, zero), (sine, cosine, zero)
        return ops.stack([ops.stack(row, axis=-1) for row in rows], axis=-2)

    def compute_output_shape(self, images_shape):
        middle = [(images_shape[0], *shape[1:]) for shape in self.middle.output_shape]
        return middle, images_shape, middle

    def get_config(self):
        return {
            **super().get_config(),
            "generator": keras.saving.serialize_keras_object(self.generator),
            "max_angle": self.max_angle,
        }

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config.pop("generator")), **config)


@keras.saving.register_keras_serializable(package="capszoo")
class CapsuleMatchingLoss(keras.layers.Layer):
    """How far the capsules that are inferred are from those that should be: `[B, 4]`, in nats but for constants.

        sum_j t_j |A'_j - A_j|^2 / (2 d_A^2),   sum_j H(t_j, t'_j)                        # parts
        sum_i t_i |A'_i - A_i|^2 / (2 d_O^2),   sum_i (l'_i - l_i)^2 / (2 d_l^2)          # objects

    where:
      A, t, l: poses, presences and their logits as they should be, `(part_poses[B, N, 2, 3], part_logits[B, N],
        object_poses[B, O, 2, 3], object_logits[B, O])`; no gradient passes to them. Primed: what is inferred.
      H(t, t'): cross-entropy of two Bernoulli variables.
      d_A: `part_deviation`; d_O, d_l: 0.3 and 0.5.
    """

    def __init__(self, part_deviation, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.part_deviation = part_deviation

    def call(self, wanted, inferred):
        wanted = [ops.stop_gradient(variable) for variable in wanted]
        errors = [ops.square(found - true) for found, true in zip(inferred, wanted, strict=True)]
        parts, objects = ops.sigmoid(wanted[1]), ops.sigmoid(wanted[3])
        terms = (
            parts * ops.sum(errors[0], axis=(-2, -1)) / (2 * self.part_deviation**2),
            ops.binary_crossentropy(parts, inferred[1], from_logits=True),
            objects * ops.sum(errors[2], axis=(-2, -1)) / (2 * OBJECT_DEVIATION**2),
            errors[3] / (2 * LOGIT_DEVIATION**2),
        )
        return ops.stack([ops.sum(term, axis=-1) for term in terms], axis=-1)

    def compute_output_shape(self, wanted_shape, inferred_shape):
        return (wanted_shape[0][0], 4)

    def get_config(self):
        return {**super().get_config(), "part_deviation": self.part_deviation}
