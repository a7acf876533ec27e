"""Poses that six numbers make, and the part capsules that have them."""

import math

import keras
from keras import ops

# What a pose is made of.
NUMBERS = 6


def affine_poses(numbers):
    """Affine maps `[..., 2, 3]` of `numbers[..., 6]`, whatever these are.

        A = [[s_x, h s_y], [0, s_y]] R(2 pi n_3),   t = (tanh(5 n_5), tanh(5 n_6))
        s_x = sigmoid(n_1) + 0.01,   s_y = sigmoid(n_2) + 0.01,   h = tanh(5 n_4)

    where:
      R: the rotation [[cos, -sin], [sin, cos]].
      the result: [A | t], of determinant s_x s_y, at least 0.0001.

    Source: authors' code of Kosiorek et al. 2019.
    """
    scales = ops.sigmoid(numbers[..., :2]) + 0.01
    angle = 2.0 * math.pi * numbers[..., 2]
    bounded = ops.tanh(5.0 * numbers[..., 3:])
    x_scale, y_scale = scales[..., 0], scales[..., 1]
    shear, x, y = bounded[..., 0] * y_scale, bounded[..., 1], bounded[..., 2]
    cosine, sine = ops.cos(angle), ops.sin(angle)
    first = ops.stack([x_scale * cosine + shear * sine, shear * cosine - x_scale * sine, x], axis=-1)
    second = ops.stack([y_scale * sine, y_scale * cosine, y], axis=-1)
    return ops.stack([first, second], axis=-2)


def noisy(logits, noise, seed_generator, training):
    """Logits with noise, uniform in +-`noise`; outside training as they are."""
    if not (training and noise):
        return logits
    return logits + keras.random.uniform(ops.shape(logits), -noise, noise, logits.dtype, seed_generator)


@keras.saving.register_keras_serializable(package="capszoo")
class PartCapsules(keras.layers.Layer):
    """Numbers about each part as a capsule: a pose, a presence, and features of its own.

        x_m = affine_poses(n_1 .. n_6),   d_m = sigmoid(n_D + noise),   z_m = the numbers between

    where:
      n: `numbers[B, M, D]`, D at least 7.
      noise: of the presences' logits, uniform in +-`noise`, in training only: it drives presences to 0 or 1.

    Returns `(poses[B, M, 2, 3], presence[B, M], logits[B, M], features[B, M, D - 7])`.
    Source: Kosiorek et al. 2019, section 2.2; authors' code.
    Differs from the authors' code: that adds noise in evaluation, too.
    """

    def __init__(self, noise=2.0, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.noise = noise
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, numbers, training=False):
        logits = noisy(numbers[..., -1], self.noise, self.seed_generator, training)
        poses = affine_poses(numbers[..., :NUMBERS])
        return poses, ops.sigmoid(logits), logits, numbers[..., NUMBERS:-1]

    def get_config(self):
        return {**super().get_config(), "noise": self.noise}


@keras.saving.register_keras_serializable(package="capszoo")
class PartElements(keras.layers.Layer):
    """Part capsules as elements of a set: what is known of each, side by side.

        e_m = (x_m, 1 - d_m, z_m, T_m),   and d_m

    where:
      x_m, d_m, z_m: `poses[B, M, 2, 3]`, `presence[B, M]`, `features[B, M, F]`.
      T_m: `templates[B, M, S, S, C]`, which tell parts apart.

    Gradients go through the features alone: what sees these elements cannot change what parts are.
    Returns `(e[B, M, 7 + F + S S C], d[B, M])`.
    Source: Kosiorek et al. 2019, section 2.3; where gradients stop from the authors' code.
    """

    def __init__(self, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)

    def call(self, poses, presence, features, templates):
        poses, presence, templates = (ops.stop_gradient(part) for part in (poses, presence, templates))
        flat = [
            ops.reshape(part, (-1, part.shape[1], math.prod(part.shape[2:]))) for part in (poses, templates)
        ]
        absence = ops.expand_dims(1.0 - presence, -1)
        return ops.concatenate([flat[0], absence, features, flat[1]], axis=-1), presence
