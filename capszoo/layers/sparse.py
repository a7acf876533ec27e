"""Capsules without classes: the routing support of each, and a mask that passes only those with the highest on."""

import keras
from keras import ops

from capszoo.layers.arguments import require_counts
from capszoo.layers.dense import DenseCapsules


@keras.saving.register_keras_serializable(package="capszoo")
class LatentCapsules(DenseCapsules):
    """Dense capsules that also say how much of the routing each of them has won.

        u_ij = u_i W_ij,  v_j = routing(u_ij)
        psi_j = (1 / positions) * sum_xy max_p c_xypj        # section 2.2

    where:
      u_i: children on a grid, poses `[B, H, W, types, D]`.
      W_ij, v_j: as in `DenseCapsules`.
      c_xypj: coefficient of the last iteration from the child of type p at position x, y to parent j.
      psi_j: routing support `[B, O]`, float32, in [0, 1] where a child's coefficients sum to one.
      support: "paper", or "code": the maximum runs over `types` neighbours in a list of the children that is ordered
        by type first, so that mostly positions of one type compete instead of types at one position.

    Returns the pair `(poses, support)`; with `return_history=True` `(pair, coefficients[T, B, I, O])`.
    Errors: `ValueError` for children that are not on a grid, for another `support`, and as `DenseCapsules`.
    Source: Rawlinson et al. 2018, section 2.2; "code" is what the authors' code computes.
    Differs from the paper: the mean over positions instead of the sum. No rank depends on it.
    """

    def __init__(self, num_capsules, pose_dim, routing, support="paper", **kwargs):
        super().__init__(num_capsules, pose_dim, routing, **kwargs)
        if support not in ("paper", "code"):
            raise ValueError(f"support must be 'paper' or 'code'. Received: {support!r}")
        self.support = support

    def build(self, input_shape):
        if len(input_shape) != 5:
            raise ValueError(f"children must be [B, H, W, types, D]. Received: {tuple(input_shape)}")
        super().build(input_shape)
        self.grid = tuple(input_shape[1:-1])

    def parent_shapes(self, batch):
        """See `Routes`."""
        return super().parent_shapes(batch), (batch, self.num_capsules)

    def call(self, poses, num_iterations=None, return_history=False):
        route = None if return_history else self._without_votes(num_iterations)
        if route:
            parents, coefficients = route(poses)
            return parents, routing_support(coefficients, self.grid, self.support)
        parents, history = super().call(poses, num_iterations, return_history or "last")
        capsules = parents, routing_support(history[-1], self.grid, self.support)
        return (capsules, history) if return_history else capsules

    def get_config(self):
        return {**super().get_config(), "support": self.support}


def routing_support(coefficients, grid, rule="paper"):
    """The support `[B, O]` of each parent, see `LatentCapsules`.

    where:
      coefficients: `[B, H * W * types, O]` of one iteration, the types as the fastest axis of the children.
      grid: `(H, W, types)`.
      rule: "paper" or "code".
    """
    types, parents = grid[-1], coefficients.shape[-1]
    if rule == "code":
        # [B, H * W, types, O] -> [B, types, H * W, O]
        coefficients = ops.swapaxes(ops.reshape(coefficients, (-1, grid[0] * grid[1], types, parents)), 1, 2)
    groups = ops.reshape(coefficients, (-1, grid[0] * grid[1], types, parents))
    return ops.mean(ops.max(groups, axis=2), axis=1)


def _require_one_replica():
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            raise ValueError(
                "SparseMask counts which capsules win in a whole batch, and each replica would see a part of it. "
                f"Received: {context.num_replicas_in_sync} replicas"
            )


@keras.saving.register_keras_serializable(package="capszoo")
class SparseMask(keras.layers.Layer):
    """Fades capsules out by their rank in routing support, in each image by itself.

        z_j = psi_j * g_j                                    # equation 1
        r_j = rank of z_j, 0 for the largest                 # equation 2
        m_j = exp(-gamma * r_j / (L - 1)), 0 below 0.01      # equation 3

    While training, each batch also counts which capsules win, and boosts those that win too seldom:

        mu_j <- decay * mu_j + (1 - decay) * share of images with r_j = 0          # equations 5-7
        every `boost_every` batches:                                               # Algorithm 1
            mu_j < frequencies[0]:  g_j <- g_j + boost_step
            mu_j > frequencies[1]:  g_j <- max(1, g_j - boost_step)

    where:
      psi_j: support `[B, L]`, not negative. Of equal z the lower index comes first.
      m_j: mask `[B, L]`, float32, in [0, 1]; no gradient passes.
      gamma: sparsity; 12 leaves 1, 0.449, 0.202, 0.091, 0.041, 0.018 of 16 capsules. 0 fades none: the mask is one
        everywhere, and as nothing can be boosted the layer has no state.
      g_j, mu_j, n: `boosts[L]`, at first 1, `frequencies[L]` and `batches`, how many were counted: not trainable,
        saved with the model, changed by `training=True` only.
      frequencies: the least and the largest mu_j that leave g_j alone; 1 / L would be uniform.

    Errors: `ValueError` for fewer than two capsules, a negative gamma or boost_step, a boost_every below one, a decay
    outside of [0, 1], and frequencies that do not ascend there; while training, on several replicas of a
    `tf.distribute.Strategy`, each of which would count its own part of a batch.
    Source: Rawlinson et al. 2018, sections 2.2 and 2.3; the divisor L - 1, lost in copies of the paper, and mu_j of
    the first batch, which is that batch's share, from the authors' code.
    Differs from the paper: equation 1 boosts v, its text and the authors' code psi, as here; ranks descend, as in
    section 2.2, where section 2.3.1 says ascending. The authors' code has
    frequencies of 0.03 and 0.12 by default and also counts images that are only evaluated.
    """

    of_whole_batch = True

    def __init__(
        self, gamma=12.0, frequencies=(0.04, 0.1), boost_step=0.1, boost_every=50, decay=0.99, **kwargs
    ):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        if gamma < 0:
            raise ValueError(f"gamma must be at least 0. Received: {gamma}")
        if boost_step < 0:
            raise ValueError(f"boost_step must be at least 0. Received: {boost_step}")
        require_counts(boost_every=boost_every)
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must be in [0, 1]. Received: {decay}")
        least, most = frequencies
        if not 0 <= least < most <= 1:
            raise ValueError(f"frequencies must be ascending in [0, 1]. Received: {tuple(frequencies)}")
        self.gamma = gamma
        self.frequency_bounds = (least, most)
        self.boost_step = boost_step
        self.boost_every = boost_every
        self.decay = decay

    def build(self, support_shape):
        capsules = support_shape[-1]
        if capsules < 2:
            raise ValueError(f"at least two capsules are needed. Received: {capsules}")
        if self.gamma:
            state = {"shape": (capsules,), "trainable": False}
            self.boosts = self.add_weight(name="boosts", initializer="ones", **state)
            self.frequencies = self.add_weight(name="frequencies", initializer="zeros", **state)
            self.batches = self.add_weight(
                name="batches", shape=(), dtype="int32", initializer="zeros", trainable=False
            )

    def ranks(self, support):
        """Rank r_j of each capsule, int32 `[B, L]`, 0 for the largest boosted support."""
        boosted = support * self.boosts if self.gamma else support
        mine, other = ops.expand_dims(boosted, 2), ops.expand_dims(boosted, 1)
        place = ops.arange(support.shape[-1])
        # [B, L, L]: whether the other capsule comes before mine.
        before = (other > mine) | ((other == mine) & (place[None, None, :] < place[None, :, None]))
        return ops.sum(ops.cast(before, "int32"), axis=-1)

    def call(self, support, training=False):
        rank = self.ranks(support)
        if training and self.gamma:
            self._count(rank)
        mask = ops.exp(-self.gamma / (support.shape[-1] - 1) * ops.cast(rank, "float32"))
        return ops.where(mask < 0.01, 0.0, mask)

    def _count(self, rank):
        """Takes a training batch into the state."""
        _require_one_replica()
        # As tensors: a variable as an argument of `where` is more than JAX can trace.
        boosts, average = ops.convert_to_tensor(self.boosts), ops.convert_to_tensor(self.frequencies)
        batches = self.batches + 1
        share = ops.mean(ops.cast(rank == 0, "float32"), axis=0)
        average = ops.where(batches == 1, share, self.decay * average + (1 - self.decay) * share)
        least, most = self.frequency_bounds
        changed = ops.where(average < least, boosts + self.boost_step, boosts)
        changed = ops.where(average > most, ops.maximum(1.0, boosts - self.boost_step), changed)
        self.boosts.assign(ops.where(batches % self.boost_every == 0, changed, boosts))
        self.frequencies.assign(average)
        self.batches.assign(batches)

    def get_config(self):
        return {
            **super().get_config(),
            "gamma": self.gamma,
            "frequencies": self.frequency_bounds,
            "boost_step": self.boost_step,
            "boost_every": self.boost_every,
            "decay": self.decay,
        }
