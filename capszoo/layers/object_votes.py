"""Object capsules that vote for the poses of their parts, and how well their votes explain parts."""

import math

import keras
from keras import ops

from capszoo.layers.affine_poses import NUMBERS, affine_poses, noisy
from capszoo.layers.arguments import require_counts
from capszoo.layers.generative import compose


@keras.saving.register_keras_serializable(package="capszoo")
class SeparateDense(keras.layers.Layer):
    """A dense layer for each element of a list, each with weights of its own.

        y_k = f(x_k W_k + b_k)

    where:
      x: `[B, K, D]`; W: the weight `kernel[K, D, units]`; b: the weight `bias[K, units]`, or 0 without `use_bias`.
      f: `activation`. y: `[B, K, units]`.

    Initial weights are truncated normal, of deviation 1 / sqrt(D), biases zero.
    Source: authors' code of Kosiorek et al. 2019.
    """

    def __init__(self, units, activation=None, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        require_counts(units=units)
        self.units = units
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias

    def build(self, elements_shape):
        _, count, width = elements_shape
        self.kernel = self.add_weight(
            name="kernel",
            shape=(count, width, self.units),
            initializer=keras.initializers.TruncatedNormal(stddev=1.0 / math.sqrt(width)),
        )
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=(count, self.units), initializer="zeros")

    def call(self, elements):
        outputs = ops.einsum("bkd,kdu->bku", elements, self.kernel)
        return self.activation(outputs + self.bias if self.use_bias else outputs)

    def compute_output_shape(self, elements_shape):
        return (*elements_shape[:-1], self.units)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
        }


@keras.saving.register_keras_serializable(package="capszoo")
class ObjectVotes(keras.layers.Layer):
    """Numbers about each object as a capsule, with a vote for the pose of each part.

        V_km = OV_k OP_km
        OV_k = affine_poses(n + bias),   OP_km = affine_poses(n + static offset)
        a_k = sigmoid(n + bias + noise),   a_km = sigmoid(n + bias + noise)

    where:
      n: `numbers[B, K, 8 M + 7]` without a bias: 6 M dynamic offsets of the parts, 6 of the object's pose, 1 of its
        presence, M of the presences of votes, M of their widths.
      static offset: the weight `offsets[K, M, 6]`; biases: the weights `pose_bias[K, 6]`, `presence_bias[K]`,
        `vote_bias[K, M]` and `width_bias[K, M]`.
      noise: uniform in +-`noise`, in training only.

    Returns `(poses, presence, logits, votes, log_presences, widths, dynamic)`: OV_k `[B, K, 2, 3]`; the presence of the
    object, a_k max over m of a_km `[B, K]`, and its logit; V_km `[B, K, M, 2, 3]`; log(a_k a_km) and widths
    `[B, K, M]`; the dynamic offsets `[B, K, M, 6]`.
    Errors: `ValueError` for numbers of another count.
    Source: Kosiorek et al. 2019, sections 2.1 and 2.3; the presence of an object from section 2.4; authors' code.
    Differs from the authors' code: that adds noise in evaluation, too.
    """

    def __init__(self, num_parts, noise=2.0, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        require_counts(num_parts=num_parts)
        self.num_parts, self.noise = num_parts, noise
        self.seed_generator = keras.random.SeedGenerator()

    def build(self, numbers_shape):
        objects, count = numbers_shape[1:]
        if count != 8 * self.num_parts + NUMBERS + 1:
            raise ValueError(
                f"numbers of each object must be {8 * self.num_parts + NUMBERS + 1}. Received: {count}"
            )
        # The authors' range for 32 objects and 40 parts: all votes begin near the middle of their objects.
        self.offsets = self.add_weight(
            name="offsets",
            shape=(objects, self.num_parts, NUMBERS),
            initializer=keras.initializers.RandomUniform(-0.064, 0.064),
        )
        for name, shape in (
            ("pose_bias", (objects, NUMBERS)),
            ("presence_bias", (objects,)),
            ("vote_bias", (objects, self.num_parts)),
            ("width_bias", (objects, self.num_parts)),
        ):
            setattr(self, name, self.add_weight(name=name, shape=shape, initializer="zeros"))

    def call(self, numbers, training=False):
        parts = self.num_parts
        sizes = (NUMBERS * parts, NUMBERS, 1, parts)
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        dynamic, pose, presence, vote_presence, widths = ops.split(numbers, ends, axis=-1)
        # [B, K, 6 M] -> [B, K, M, 6]
        dynamic = ops.reshape(dynamic, (-1, numbers.shape[1], parts, NUMBERS))
        poses = affine_poses(pose + self.pose_bias)
        votes = compose(ops.expand_dims(poses, 2), affine_poses(dynamic + self.offsets))
        of_object = presence[..., 0] + self.presence_bias
        of_votes = vote_presence + self.vote_bias
        of_object, of_votes = (
            noisy(logits, self.noise, self.seed_generator, training) for logits in (of_object, of_votes)
        )
        log_presences = ops.log_sigmoid(ops.expand_dims(of_object, -1)) + ops.log_sigmoid(of_votes)
        logits = _logit_of_both(of_object, ops.max(of_votes, axis=-1))
        return poses, ops.sigmoid(logits), logits, votes, log_presences, widths + self.width_bias, dynamic

    def get_config(self):
        return {**super().get_config(), "num_parts": self.num_parts, "noise": self.noise}


@keras.saving.register_keras_serializable(package="capszoo")
class VoteMixture(keras.layers.Layer):
    """How well the votes of objects explain parts: each part belongs to one of them, or to the clutter.

        log p(x_m) = log of the sum over k of s_km p(x_m | k),   k = 0 .. K
        s_km = a_k a_km / sum over i of a_i a_im
        p(x_m | k) = N(x_m; V_km, deviation_km^2)

    where:
      x_m: `part_poses[B, M, 2, 3]`; d_m: `part_presence[B, M]`. No gradient goes through them.
      V_km: `votes[B, K, M, 2, 3]`; log a_k a_km: `log_presences[B, K, M]`.
      deviation: `least_deviation` + softplus(w + 0.5) of `widths` w `[B, K, M]`, the same for all entries of a pose.
      k = 0: the clutter, with the weight `clutter` and the density `clutter_density`.

    Returns `(density, coefficients, explained)`: d_m log p(x_m) `[B, M]`; the posterior of the owner of each part
    `[B, M, 1 + K]`, clutter first, each row summing to one; and the share of the parts that each object explains, the
    mean of the coefficients over the parts, `[B, K]`.
    Source: Kosiorek et al. 2019, section 2.3; deviations and clutter from the authors' code.
    Differs from the authors' code: that does not divide a_k a_km by their sum, so that its mixture is no density and
    grows with every presence.
    """

    def __init__(self, clutter=0.01, clutter_density=0.01, least_deviation=0.01, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.clutter, self.clutter_density = clutter, clutter_density
        self.least_deviation = least_deviation

    def call(self, votes, log_presences, widths, part_poses, part_presence):
        part_poses, part_presence = ops.stop_gradient(part_poses), ops.stop_gradient(part_presence)
        deviations = self.least_deviation + ops.softplus(widths + 0.5)
        squares = ops.sum(ops.square(ops.expand_dims(part_poses, 1) - votes), axis=(-2, -1))
        constant = 0.5 * NUMBERS * math.log(2.0 * math.pi)
        densities = -0.5 * squares / ops.square(deviations) - NUMBERS * ops.log(deviations) - constant
        clutter = ops.full_like(log_presences[:, :1], 1.0)
        # [B, 1 + K, M]
        shares = ops.concatenate([math.log(self.clutter) * clutter, log_presences], axis=1)
        densities = ops.concatenate([math.log(self.clutter_density) * clutter, densities], axis=1)
        joint = ops.log_softmax(shares, axis=1) + densities
        coefficients = ops.swapaxes(ops.softmax(joint, axis=1), 1, 2)
        explained = ops.mean(coefficients[..., 1:], axis=1)
        return part_presence * ops.logsumexp(joint, axis=1), coefficients, explained

    def get_config(self):
        return {
            **super().get_config(),
            "clutter": self.clutter,
            "clutter_density": self.clutter_density,
            "least_deviation": self.least_deviation,
        }


def _logit_of_both(first, second):
    """logit(sigmoid(first) sigmoid(second)), also where the product is near 0 or 1."""
    # Not by `logaddexp`, for which ONNX has no operation.
    absent = ops.stack([ops.log_sigmoid(-first), ops.log_sigmoid(first) + ops.log_sigmoid(-second)])
    return ops.log_sigmoid(first) + ops.log_sigmoid(second) - ops.logsumexp(absent, axis=0)
