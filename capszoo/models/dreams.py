"""Dreams: pictures of turned capsules, which the generative model draws and the inference network has to understand.

The network that infers has seen upright digits only. The generative model knows no upright: where an object is turned
its parts are turned with it (equation 5 of Smith et al. 2020). So what was inferred of an image is turned, drawn, and
has to be inferred again, as in the sleep phase of Hinton et al. 1995; no turned image is ever looked at.
"""

import dataclasses
import math

import keras
import numpy as np
from keras import ops

from capszoo.layers.generative import compose, identity
from capszoo.models.bound import SummedOutput

# Deviations that what is inferred of a dream may have from what was dreamt.
PART_DEVIATION, OBJECT_DEVIATION, LOGIT_DEVIATION = 1.0, 0.3, 0.5


@keras.saving.register_keras_serializable(package="capszoo")
class TurnedCapsules(keras.layers.Layer):
    """Capsules as they would be if the whole picture were turned about its middle.

        A_j -> R A_j,  I + A_i -> R (I + A_i)

    where:
      A_j: parts, `part_poses[B, N, 2, 3]`, affine maps; A_i: objects, `object_poses[B, O, 2, 3]`, less the identity.
      R: of each image a rotation by its own angle, uniform in +-`max_angle` degrees; outside training none.

    Returns the pair of both.
    """

    def __init__(self, max_angle=180.0, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.max_angle = max_angle
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, part_poses, object_poses, training=False):
        if not training:
            return part_poses, object_poses
        limit = math.radians(self.max_angle)
        angles = keras.random.uniform((ops.shape(part_poses)[0], 1), -limit, limit, seed=self.seed_generator)
        cosine, sine, zero = ops.cos(angles), ops.sin(angles), ops.zeros_like(angles)
        # [B, 1, 2, 3] beside [B, N, 2, 3]
        rows = (cosine, -sine, zero), (sine, cosine, zero)
        turn = ops.stack([ops.stack(row, axis=-1) for row in rows], axis=-2)
        return compose(turn, part_poses), compose(turn, object_poses + identity()) - identity()

    def compute_output_shape(self, part_poses_shape, object_poses_shape):
        return (part_poses_shape, object_poses_shape)

    def get_config(self):
        return {**super().get_config(), "max_angle": self.max_angle}


@keras.saving.register_keras_serializable(package="capszoo")
class DreamSurprise(keras.layers.Layer):
    """How far what is inferred of a dream is from what was dreamt: `[B, 4]`, in nats but for constants.

        sum_j t_j |A'_j - A_j|^2 / (2 d_A^2),   sum_j H(t_j, t'_j)             # parts
        sum_i t_i |A'_i - A_i|^2 / (2 d_O^2),   sum_i (l'_i - l_i)^2 / (2 d_l^2)      # objects

    where:
      A, t, l: poses, presences and their logits that were dreamt, `(part_poses[B, N, 2, 3], part_logits[B, N],
        object_poses[B, O, 2, 3], object_logits[B, O])`; no gradient passes to them. Primed: those that were inferred.
      H(t, t'): cross-entropy of two Bernoulli variables.
      d_A, d_O, d_l: 1, 0.3 and 0.5.
    """

    def __init__(self, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)

    def call(self, dreamt, inferred):
        dreamt = [ops.stop_gradient(variable) for variable in dreamt]
        errors = [ops.square(found - told) for found, told in zip(inferred, dreamt, strict=True)]
        parts, objects = ops.sigmoid(dreamt[1]), ops.sigmoid(dreamt[3])
        terms = (
            parts * ops.sum(errors[0], axis=(-2, -1)) / (2 * PART_DEVIATION**2),
            ops.binary_crossentropy(parts, inferred[1], from_logits=True),
            objects * ops.sum(errors[2], axis=(-2, -1)) / (2 * OBJECT_DEVIATION**2),
            errors[3] / (2 * LOGIT_DEVIATION**2),
        )
        return ops.stack([ops.sum(term, axis=-1) for term in terms], axis=-1)

    def compute_output_shape(self, dreamt_shape, inferred_shape):
        return (dreamt_shape[0][0], 4)


def with_dreams(objective, model, weight, max_angle):
    """The objective of a `ProbabilisticCapsNet`, and that dreams be understood: `DreamSurprise`, times `weight`.

    where:
      objective, model: of `bound_objective`, and its inference model.
      max_angle: dreams are turned by up to so many degrees either way.

    Only the inference network learns by it. Dreams have the middle of q, not a sample.
    """
    capsules = [model.get_layer(name) for name in ("part_capsules", "object_capsules")]
    middles = [variable for layer in capsules for variable in layer.input[:2]]
    inference = keras.Model(model.input, middles, name="inference")
    part_poses, part_logits, object_poses, object_logits = middles
    turned = TurnedCapsules(max_angle, name="turned")(part_poses, object_poses)
    presence = keras.layers.Activation("sigmoid", dtype="float32", name="dreamt_presence")(part_logits)
    dream = ops.stop_gradient(model.get_layer("renderer")(turned[0], presence))
    dreamt = [turned[0], part_logits, turned[1], object_logits]
    surprise = weight * DreamSurprise(name="dream_surprise")(dreamt, inference(dream))

    def arrange(batch):
        inputs, targets = objective.arrange(batch)
        return inputs, {**targets, "dreams": np.zeros((len(batch["images"]), 4), "float32")}

    outputs = {**objective.model.output, "dreams": surprise}
    return dataclasses.replace(
        objective,
        model=keras.Model({"images": model.input}, outputs),
        losses={**objective.losses, "dreams": SummedOutput()},
        arrange=arrange,
    )
