"""Capsules as random variables: objects, the parts they are made of, and how likely all that is.

A presence t in [0, 1] is a relaxed Bernoulli variable: the binary concrete distribution, of which samples can be
differentiated. It is carried as its logit, whose distribution is the logistic one; near 0 and 1 t itself has lost its
digits. Bounds do not change by it: the factor between the two densities is in p and in q.
"""

import math

import keras
from keras import ops

from capszoo.layers.arguments import require_counts
from capszoo.layers.distributions import distributions, require_distributions


@keras.saving.register_keras_serializable(package="capszoo")
class SampledCapsules(keras.layers.Layer):
    """Capsules drawn from the approximate posterior q; outside training its middle.

        logit(t) = (l + noise) / temperature        noise: logistic, so that t is relaxed Bernoulli(sigmoid(l))
        A = m + d * noise                           noise: normal; d = 0 without deviations: a Delta posterior

    where:
      m, l, log d: `poses[B, N, ...]`, `logits[B, N]`, and where given `log_deviations`, like poses.

    Returns `(poses, presence, logits, density)`: A; t in [0, 1]; logit(t); and log q of the sample `[B, N]`, in which
    a Delta posterior counts nothing. Outside training noise is zero, and t = sigmoid(l / temperature).
    Errors: `ValueError` for a temperature that is not positive; `MissingExtra` without TensorFlow Probability.
    Source: Smith et al. 2020, sections 2.2 and 2.3; Maddison et al. 2016, section 3.
    """

    def __init__(self, temperature=1.0, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        if not temperature > 0:
            raise ValueError(f"temperature must be positive. Received: {temperature}")
        # Here, since Keras makes many lines of an error in `call`.
        require_distributions()
        self.temperature = temperature
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, poses, logits, log_deviations=None, training=False):
        sampled, sampled_poses = logits / self.temperature, poses
        if training:
            uniform = keras.random.uniform(
                ops.shape(logits), 1e-6, 1.0 - 1e-6, logits.dtype, self.seed_generator
            )
            sampled = (logits + ops.log(uniform) - ops.log(1.0 - uniform)) / self.temperature
        density = presence_density(sampled, logits, self.temperature)
        if log_deviations is not None:
            deviations = ops.exp(log_deviations)
            if training:
                noise = keras.random.normal(ops.shape(poses), dtype=poses.dtype, seed=self.seed_generator)
                sampled_poses = poses + deviations * noise
            normal = distributions().Normal(poses, deviations)
            axes = tuple(range(2, len(poses.shape)))
            density = density + ops.sum(normal.log_prob(sampled_poses), axis=axes)
        return sampled_poses, ops.sigmoid(sampled), sampled, density

    # Shapes are given, since JAX's distributions cannot be traced for a batch of any size.
    def compute_output_shape(self, poses_shape, logits_shape, log_deviations_shape=None):
        return (poses_shape, logits_shape, logits_shape, logits_shape)

    def get_config(self):
        return {**super().get_config(), "temperature": self.temperature}


@keras.saving.register_keras_serializable(package="capszoo")
class PartsFromObjects(keras.layers.Layer):
    """How well objects explain parts: each part belongs to one of them or to the clutter, and it is summed over which.

        p(s_j = i) = rho_ij t_i / sum_k rho_kj t_k                        # equation 3; t_0 = 1
        p(t_j | s_j = i) = relaxed Bernoulli(gamma_ij)                    # equation 4
        log p(A_j | s_j = i, t_j) = t_j log N(A_j; (I + A_i) M_ij, c_ij)
                                    + (1 - t_j) log N(A_j; I, off_deviation)      # equations 5 and 6
        p(A_j, t_j | objects) = sum_i p(s_j = i) p(t_j | s_j = i) p(A_j | s_j = i, t_j)      # equation 9

    where:
      A_i, t_i: objects, `object_poses[B, O, 2, 3]` as deviations from the identity, and the logits of their presences
        `object_logits[B, O]`.
      A_j, t_j: parts, `part_poses[B, N, 2, 3]` and `part_logits[B, N]`.
      i = 0: the clutter, always present, N(A_j; I, clutter_deviation).
      rho_ij: in [0, 1], the logistic function of the weight `affinities[N, O]`; rho_0j is `clutter`.
      gamma_ij: the logistic function of the weight `part_logits[N, 1 + O]`.
      M_ij: affine maps from part to object, the sum of the weights `common_offsets[N, 2, 3]` and `offsets[N, O, 2, 3]`.
      c_ij: standard deviations, `least_deviation` + softplus of the sum of the weights `common_widths[N, 2, 3]` and
        `widths[N, O, 2, 3]`.

    What all objects have in common keeps those that explain nothing near to those that do. Without it the first object
    that fits explains every image, and none of the others ever comes near.

    Returns `(density, coefficients)`: log p(A_j, t_j | objects) `[B, N]`, that of the logit of t_j, and the posterior
    p(s_j = i | objects, parts) `[B, N, 1 + O]`, each row summing to one (appendix D).
    Source: Smith et al. 2020, equations 3 to 6 and 9, appendix B.
    Differs from the paper: the printed equations 5 and 6 have t_i and A_j where t_j and A_i must be meant. What a
    relaxed t_j makes of the two densities is not said; here it is their geometric mean. The middle of poses that are
    off, and of those of the clutter, is the identity, not zero, at which a template would vanish. The clutter has one
    deviation, not one for each part. All of these are standard deviations; the paper's lambda_off is a variance, and
    its c_ij one in section 2.1, a standard deviation in appendix B.
    Errors: `MissingExtra`, when called, without TensorFlow Probability.
    """

    def __init__(
        self,
        num_objects,
        num_parts,
        temperature=1.0,
        clutter=0.01,
        clutter_deviation=1.0,
        off_deviation=1.0,
        least_deviation=0.1,
        **kwargs,
    ):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        require_counts(num_objects=num_objects, num_parts=num_parts)
        self.num_objects, self.num_parts = num_objects, num_parts
        self.temperature = temperature
        self.clutter, self.clutter_deviation, self.off_deviation = clutter, clutter_deviation, off_deviation
        self.least_deviation = least_deviation

    def build(self, object_poses_shape, *_):
        # Others would be broadcast.
        self.input_spec = keras.InputSpec(shape=(None, self.num_objects, 2, 3))
        pairs = (self.num_parts, self.num_objects)
        self.affinities = self.add_weight(name="affinities", shape=pairs, initializer="zeros")
        self.part_presence = self.add_weight(
            name="part_logits", shape=(self.num_parts, 1 + self.num_objects), initializer="zeros"
        )
        self.common_offsets = self.add_weight(
            name="common_offsets", shape=(self.num_parts, 2, 3), initializer=NearIdentity(0.1)
        )
        # Objects that start alike would stay alike.
        self.offsets = self.add_weight(
            name="offsets", shape=(*pairs, 2, 3), initializer=keras.initializers.RandomNormal(stddev=0.1)
        )
        self.common_widths = self.add_weight(
            name="common_widths", shape=(self.num_parts, 2, 3), initializer="zeros"
        )
        self.widths = self.add_weight(name="widths", shape=(*pairs, 2, 3), initializer="zeros")

    def call(self, object_poses, object_logits, part_poses, part_logits):
        normal = distributions().Normal
        # [B, N, 1, 2, 3] beside [B, 1, O, 2, 3] and [N, O, 2, 3]
        poses = ops.expand_dims(part_poses, 2)
        offsets = ops.expand_dims(self.common_offsets, 1) + self.offsets
        means = compose(ops.expand_dims(object_poses, 1) + identity(), offsets)
        widths = self.deviations()
        on = ops.sum(normal(means, widths).log_prob(poses), axis=(-2, -1))
        clutter = ops.sum(normal(identity(), self.clutter_deviation).log_prob(poses), axis=(-2, -1))
        on = ops.concatenate([clutter, on], axis=-1)
        off = ops.sum(normal(identity(), self.off_deviation).log_prob(poses), axis=(-2, -1))
        logits = ops.expand_dims(part_logits, -1)
        presence = ops.sigmoid(logits)
        density = presence_density(logits, ops.convert_to_tensor(self.part_presence), self.temperature)
        joint = self._log_selection(object_logits) + density + presence * on + (1.0 - presence) * off
        return ops.logsumexp(joint, axis=-1), ops.softmax(joint)

    def deviations(self):
        """c_ij: `[N, O, 2, 3]`."""
        widths = ops.expand_dims(self.common_widths, 1) + self.widths
        return self.least_deviation + ops.softplus(widths)

    def _log_selection(self, object_logits):
        """log p(s_j = i): `[B, N, 1 + O]`."""
        weights = ops.log_sigmoid(self.affinities) + ops.expand_dims(ops.log_sigmoid(object_logits), 1)
        clutter = ops.full_like(weights[..., :1], math.log(self.clutter))
        return ops.log_softmax(ops.concatenate([clutter, weights], axis=-1))

    def compute_output_shape(
        self, object_poses_shape, object_logits_shape, part_poses_shape, part_logits_shape
    ):
        return (part_logits_shape, (*part_logits_shape, 1 + self.num_objects))

    def get_config(self):
        return {
            **super().get_config(),
            "num_objects": self.num_objects,
            "num_parts": self.num_parts,
            "temperature": self.temperature,
            "clutter": self.clutter,
            "clutter_deviation": self.clutter_deviation,
            "off_deviation": self.off_deviation,
            "least_deviation": self.least_deviation,
        }


@keras.saving.register_keras_serializable(package="capszoo")
class Divergence(keras.layers.Layer):
    """How much each capsule of a sample costs beside the likelihood of the pixels: an estimate of KL(q, p).

        log q(t_i, A_i) - log p(t_i, A_i)                            # objects
        log q(t_j, A_j) - log p(t_j, A_j | objects)                  # parts
        p(t_i, A_i) = relaxed Bernoulli(t_i; presence) N(A_i; 0, 1)

    where:
      A_i: `object_poses[B, O, ...]`; t_i: `object_logits[B, O]`, their logits.
      log q: `object_density[B, O]` and `posterior_density[B, N]`; log p(parts | objects): `part_density[B, N]`.
      the result: `[B, O + N]`, in nats, objects first.

    Errors: `ValueError` for a presence outside (0, 1); `MissingExtra`, when called, without TensorFlow Probability.
    Source: Smith et al. 2020, equations 1 and 2, appendix A.
    """

    def __init__(self, presence=0.1, temperature=1.0, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        if not 0 < presence < 1:
            raise ValueError(f"presence must be in (0, 1). Received: {presence}")
        self.presence, self.temperature = presence, temperature

    def call(self, object_poses, object_logits, object_density, posterior_density, part_density):
        prior = math.log(self.presence / (1.0 - self.presence))
        objects = presence_density(object_logits, prior, self.temperature)
        axes = tuple(range(2, len(object_poses.shape)))
        objects = objects + ops.sum(distributions().Normal(0.0, 1.0).log_prob(object_poses), axis=axes)
        return ops.concatenate([object_density - objects, posterior_density - part_density], axis=-1)

    def compute_output_shape(
        self,
        object_poses_shape,
        object_logits_shape,
        object_density_shape,
        posterior_density_shape,
        part_density_shape,
    ):
        return (object_logits_shape[0], object_logits_shape[1] + part_density_shape[1])

    def get_config(self):
        return {**super().get_config(), "presence": self.presence, "temperature": self.temperature}


@keras.saving.register_keras_serializable(package="capszoo")
class GaussianCode(keras.layers.Layer):
    """A code drawn from a normal posterior whose prior is N(0, 1); outside training its mean.

        z = m + d * noise
        KL(N(m_k, d_k^2), N(0, 1)) = (m_k^2 + d_k^2 - 1) / 2 - log d_k

    where:
      m, log d: `means[B, K]` and `log_deviations[B, K]`; the latter counts within +-10.

    Returns `(z, d, divergence)`, each `[B, K]`, the last in nats.
    Errors: `MissingExtra` without TensorFlow Probability.
    Source: Kingma and Welling 2013, section 3.
    """

    def __init__(self, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        require_distributions()
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, means, log_deviations, training=False):
        deviations = ops.exp(ops.clip(log_deviations, -10.0, 10.0))
        code = means
        if training:
            noise = keras.random.normal(ops.shape(means), dtype=means.dtype, seed=self.seed_generator)
            code = means + deviations * noise
        tfd = distributions()
        divergence = tfd.kl_divergence(tfd.Normal(means, deviations), tfd.Normal(0.0, 1.0))
        return code, deviations, divergence

    def compute_output_shape(self, means_shape, log_deviations_shape):
        return (means_shape, means_shape, means_shape)


def unit_normal(shape, dtype):
    """Normal numbers, of a seed of their own: Keras' global generator cannot be made where one layer builds another."""
    return keras.initializers.RandomNormal(stddev=1.0)(shape, dtype=dtype)


@keras.saving.register_keras_serializable(package="capszoo")
class NearIdentity(keras.initializers.Initializer):
    """Affine maps `[..., 2, 3]`: the identity and normal noise; twice as much of it in translations.

    where:
      deviation: of the noise in the linear part.
    """

    def __init__(self, deviation):
        self.deviation = deviation

    def __call__(self, shape, dtype=None):
        noise = unit_normal(shape, dtype)
        return ops.cast(identity(), noise.dtype) + self.deviation * noise * ops.array(
            [1.0, 1.0, 2.0], noise.dtype
        )

    def get_config(self):
        return {"deviation": self.deviation}


@keras.saving.register_keras_serializable(package="capszoo")
class ScatteredCapsules(keras.initializers.Initializer):
    """Capsules `[N, 7]`: affine maps `[2, 3]` near the identity, row by row, in many places; and a logit.

    where:
      deviation: of the normal noise in the linear part; translations have four times as much.
      logit: of the presences.
    """

    def __init__(self, deviation=0.15, logit=1.0):
        self.deviation, self.logit = deviation, logit

    def __call__(self, shape, dtype=None):
        noise = unit_normal(shape, dtype)
        middle = ops.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, self.logit], noise.dtype)
        scale = ops.array([1.0, 1.0, 4.0, 1.0, 1.0, 4.0, 0.0], noise.dtype)
        return middle + self.deviation * scale * noise

    def get_config(self):
        return {"deviation": self.deviation, "logit": self.logit}


def presence_density(sampled, logits, temperature):
    """log density of the logit of a relaxed Bernoulli variable with `logits` at the value `sampled`."""
    return distributions().Logistic(logits / temperature, 1.0 / temperature).log_prob(sampled)


def identity():
    """The affine map `[2, 3]` that changes nothing."""
    return ops.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], "float32")


def compose(outer, inner):
    """The affine maps `outer` after `inner`, both `[..., 2, 3]`."""
    linear = outer[..., :1] * inner[..., :1, :] + outer[..., 1:2] * inner[..., 1:, :]
    return linear + outer[..., 2:] * ops.array([0.0, 0.0, 1.0], "float32")
