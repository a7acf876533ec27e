"""Capsules that generate: objects predict the poses of parts, and each part chooses its parent among them."""

import math

import keras
from keras import ops

from capszoo.layers.arguments import require_counts, require_routing, require_shape
from capszoo.layers.distributions import distributions
from capszoo.routing.attention import AttentionRouting
from capszoo.routing.von_mises_fisher import log_von_mises_fisher

RULES = ("log_density", "density")


@keras.saving.register_keras_serializable(package="capszoo")
class Patches(keras.layers.Layer):
    """Cuts an image into part capsules, one for each square patch: `[B, H, W, C]` -> `[B, parts, size * size * C]`.

    where:
      size: of a patch, in pixels; patches do not overlap, and are listed row by row.

    `assemble` puts them together again. A part's pose is the patch itself, so a density of parts is one of images.
    Errors: `ValueError` for images that are no whole number of patches high and wide, of another rank, or of an unknown
    H, W or C.
    The paper does not say what parts are; patches are ours.
    """

    def __init__(self, size, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        require_counts(size=size)
        self.size = size

    def build(self, input_shape):
        require_shape("images", input_shape, "[B, H, W, C]")
        height, width, channels = input_shape[1:]
        if height % self.size or width % self.size:
            raise ValueError(
                f"images must be a multiple of {self.size} high and wide. Received: {input_shape}"
            )
        self.input_spec = keras.InputSpec(shape=(None, *input_shape[1:]))
        self.grid = height // self.size, width // self.size, channels

    def call(self, images):
        rows, columns, channels = self.grid
        patches = ops.reshape(images, (-1, rows, self.size, columns, self.size, channels))
        # [B, rows, size, columns, size, C] -> [B, rows, columns, size, size, C]
        patches = ops.transpose(patches, (0, 1, 3, 2, 4, 5))
        return ops.reshape(patches, (-1, rows * columns, self.size * self.size * channels))

    def assemble(self, parts):
        """The images `[B, H, W, C]` of parts `[B, parts, size * size * C]`."""
        rows, columns, channels = self.grid
        patches = ops.reshape(parts, (-1, rows, columns, self.size, self.size, channels))
        patches = ops.transpose(patches, (0, 1, 3, 2, 4, 5))
        return ops.reshape(patches, (-1, rows * self.size, columns * self.size, channels))

    def get_config(self):
        return {**super().get_config(), "size": self.size}


@keras.saving.register_keras_serializable(package="capszoo")
class GaussianCapsules(keras.layers.Layer):
    """Capsules whose poses are Gaussians: means and log-deviations.

        m, log s = x W + b

    where:
      x: features `[B, F]`.
      m, log s: `[B, num_capsules, pose_dim]` each, float32.
      W: `dense/kernel[F, 2 * num_capsules * pose_dim]`, Glorot uniform, means first; b: `dense/bias`, at first zero.

    Returns the pair `(m, log s)`. The paper has no encoder; this one is ours.
    """

    def __init__(self, num_capsules, pose_dim, **kwargs):
        super().__init__(**kwargs)
        require_counts(num_capsules=num_capsules, pose_dim=pose_dim)
        self.num_capsules = num_capsules
        self.pose_dim = pose_dim

    def build(self, input_shape):
        width = 2 * self.num_capsules * self.pose_dim
        self.dense = keras.layers.Dense(width, name="dense", dtype=self.dtype_policy)
        self.dense.build(input_shape)

    def call(self, features):
        both = ops.reshape(
            ops.cast(self.dense(features), "float32"), (-1, 2, self.num_capsules, self.pose_dim)
        )
        return both[:, 0], both[:, 1]

    def get_config(self):
        return {**super().get_config(), "num_capsules": self.num_capsules, "pose_dim": self.pose_dim}


@keras.saving.register_keras_serializable(package="capszoo")
class TopDownCapsules(keras.layers.Layer):
    """Object capsules as a generative model of part capsules, in which each part has one parent.

        u_ij = v_j W_ij + b_ij                                            # what object j predicts of part i
        q_i = attention(u_i)                                              # equation 6
        pi_i = softmax over j of log vMF(q_i; u_ij, kappa_ij)             # rule="log_density"
        pi_i = softmax over j of vMF(q_i; u_ij, kappa_ij)                 # rule="density"; equation 7
        p(x_i) = sum_j pi_ij N(x_i; u_ij, sigma_ij^2 I)                   # equation 7
        p(x) = prod_i p(x_i)                                              # equation 8
        r_ij = pi_ij N(x_i; u_ij, sigma_ij^2 I) / p(x_i)                  # the parse: who is the parent of part i

    where:
      v_j: poses `[B, n, D]` of n objects.
      x_i: poses `[B, m, d]` of m parts.
      W_ij, b_ij: `kernel[n, D, m, d]`, normal with deviation 0.3 / sqrt(D), and `bias[n, m, d]`, at first zero.
      attention: a `capszoo.routing.AttentionRouting`, which has a weight of its own, `query[m, d]`.
      q_i: the blend of the predictions `[B, m, d]`.
      vMF: see `capszoo.routing.von_mises_fisher`; kappa_ij is exp of `log_concentrations[n, m]`.
      sigma_ij^2: noise^2 + exp(2 * `log_scales[n, m]`).
      pi_ij, r_ij: `[B, m, n]`, in [0, 1]; those of a part sum to one over the objects.

    `layer(v, x)` returns the pair of sum_j r_ij u_ij, `[B, m, d]`, and r; `distribution(v)` is p as an object of
    TensorFlow Probability, which can be sampled. The pair needs no TensorFlow Probability.
    Errors: `ValueError` for another rule, for another routing than that of attention, and for d below 2 and above 32.
    Source: Kiefer et al. 2022, equations 6 to 8.
    Differs from the paper: equation 7 takes the gates at x_i itself. Then p(x_i) is no density of x_i: its integral is
    somewhere between 0 and n. At the query of equation 6, which does not know x_i, it is 1. b_ij is not in the paper.
    Densities in a softmax are not Bayes' rule, their logarithms are; hence the default.
    """

    def __init__(self, attention, noise=0.0, rule="log_density", **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        if rule not in RULES:
            raise ValueError(f"rule must be 'log_density' or 'density'. Received: {rule!r}")
        require_routing(attention, AttentionRouting, "attention")
        self.attention = attention
        self.noise = noise
        self.rule = rule

    def build(self, poses_shape, parts_shape):
        (objects, depth), (parts, dimensions) = poses_shape[1:], parts_shape[1:]
        deviation = 0.3 / math.sqrt(depth)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(objects, depth, parts, dimensions),
            initializer=keras.initializers.RandomNormal(stddev=deviation),
        )
        self.bias = self.add_weight(name="bias", shape=(objects, parts, dimensions), initializer="zeros")
        self.log_scales = self.add_weight(
            name="log_scales",
            shape=(objects, parts),
            initializer=keras.initializers.Constant(math.log(0.3)),
        )
        self.log_concentrations = self.add_weight(
            name="log_concentrations", shape=(objects, parts), initializer="zeros"
        )
        self.attention.build((None, objects, parts, dimensions))

    def predictions(self, poses):
        """u `[B, n, m, d]` of the objects' poses `[B, n, D]`."""
        objects, depth, parts, dimensions = self.kernel.shape
        # One matrix product per object.
        flat = ops.einsum("bnk,nkx->bnx", poses, ops.reshape(self.kernel, (objects, depth, -1)))
        return ops.reshape(flat, (-1, objects, parts, dimensions)) + self.bias

    def log_gates(self, predictions, query=None):
        """ln pi `[B, m, n]`, taken at `query[B, m, d]`, by default at that of equation 6."""
        query = self.attention(predictions)[0] if query is None else query
        logits = log_von_mises_fisher(
            ops.expand_dims(query, 1), predictions, ops.exp(self.log_concentrations)
        )
        # [B, n, m] -> [B, m, n]
        logits = ops.swapaxes(logits, 1, 2)
        # A density above float32's largest number is as good as it.
        return ops.log_softmax(logits if self.rule == "log_density" else ops.exp(ops.minimum(logits, 88.0)))

    def variances(self):
        """sigma^2 `[m, n]`."""
        return self.noise**2 + ops.exp(2.0 * ops.transpose(self.log_scales))

    def call(self, poses, parts):
        predictions, variances = self.predictions(poses), self.variances()
        # [B, n, m, d] -> [B, m, n, d]
        means = ops.swapaxes(predictions, 1, 2)
        squares = ops.sum(ops.square(ops.expand_dims(parts, 2) - means), axis=-1)
        log_normal = -0.5 * (squares / variances + parts.shape[-1] * ops.log(variances))
        parse = ops.softmax(self.log_gates(predictions) + log_normal)
        return ops.sum(ops.expand_dims(parse, -1) * means, axis=2), parse

    def distribution(self, poses, query=None):
        """p(x | v) as a distribution of parts `[m, d]`, one for each row of `poses[B, n, D]`.

        where:
          query: `[B, m, d]`, at which the gates are taken, by default that of equation 6.

        Errors: `ImportError` without TensorFlow Probability.
        """
        tfd = distributions()
        predictions = self.predictions(poses)
        # [B, n, m, d] -> [B, m, n, d]: TensorFlow Probability mixes along the last axis of the batch.
        means = ops.swapaxes(predictions, 1, 2)
        deviations = ops.expand_dims(ops.sqrt(self.variances()), -1)
        parents = tfd.Independent(tfd.Normal(means, deviations), reinterpreted_batch_ndims=1)
        mixture = tfd.MixtureSameFamily(tfd.Categorical(logits=self.log_gates(predictions, query)), parents)
        return tfd.Independent(mixture, reinterpreted_batch_ndims=1)

    def get_config(self):
        attention = keras.saving.serialize_keras_object(self.attention)
        return {**super().get_config(), "attention": attention, "noise": self.noise, "rule": self.rule}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["attention"] = keras.saving.deserialize_keras_object(config["attention"])
        return cls(**config)
