"""Heinsen's routing: parents are Gaussians that maximise what children use of them, net of what is ignored."""

import math

import keras
import numpy as np
from keras import ops

from capszoo.routing.by_image import deviations, row_times, times_column
from capszoo.routing.by_position import _RoutingByPosition

# Under masses and variances.
EPSILON = 1e-5


@keras.saving.register_keras_serializable(package="capszoo")
class HeinsenRouting(_RoutingByPosition):
    """Shares each child among Gaussian parents; a parent is active by what is used of children, less what is ignored.

        R_ij = 1 / O
        repeat for t = 0 .. num_iterations - 1:
            U_ij = a_i R_ij,  G_ij = a_i - U_ij                                     # used and ignored
            x_j = sum_i beta_use_ij U_ij - sum_i beta_ignore_ij G_ij
            mu_j = sum_i U_ij V_ij / (sum_i U_ij + epsilon)                         # M-step
            s_j = sum_i U_ij (V_ij - mu_j)^2 / (sum_i U_ij + epsilon) + epsilon
            z_ij = ln sigmoid(x_j) - sum_h ((V_ijh - mu_jh)^2 / (2 s_jh) + ln(s_jh) / 2)    # E-step
            R_ij = exp(z_ij) / sum_k exp(z_ik)
        a_j = sigmoid(x_j)

    where:
      V_ij: `votes[B, ..., I, O, D]`; a_i: `activations[B, ..., I]`, in [0, 1].
      R_ij: coefficients `[B, ..., I, O]`, in [0, 1]; those of a child sum to one over the parents at one position.
      mu_j: parent poses `[B, ..., O, D]`; s_j: their variances along each dimension.
      x_j, a_j: logits and activations `[B, ..., O]` of the parents; a_j in (0, 1).
      beta_use, beta_ignore: benefit and cost of a unit of data that is used or ignored, `[O, I]`. They begin normal, of
        standard deviation 1 / I.
      shared_betas: the betas of a parent are the same for all children: weights `[O]`, which are I times beta and begin
        standard normal, so that a step of an optimiser moves x_j as little for thousands of children as for ten.
      logits: returns x_j instead of a_j.
      epsilon: 1e-5.

    Errors: `ValueError` for votes of rank below 4 and for missing activations.
    Source: Heinsen 2019, "An algorithm for routing capsules in all domains", Algorithm 1 and equations 1 to 7; the two
    epsilons from the author's code.
    Differs from the author's code: shared betas are not divided by I there; all begin at zero, where no gradient
    reaches anything but betas.
    """

    def __init__(self, num_iterations=3, shared_betas=False, logits=False, **kwargs):
        super().__init__(num_iterations=num_iterations, **kwargs)
        self.shared_betas = shared_betas
        self.logits = logits

    def build(self, votes_shape):
        super().build(votes_shape)
        self.parent_count = votes_shape[-2]
        children, parents, _ = votes_shape[-3:]
        shape, deviation = ((parents,), 1.0) if self.shared_betas else ((parents, children), 1.0 / children)
        for name in ("beta_use", "beta_ignore"):
            # One for each: an initializer draws the same numbers whenever it is asked.
            initializer = keras.initializers.RandomNormal(stddev=deviation)
            setattr(self, name, self.add_weight(name=name, shape=shape, initializer=initializer))

    def route(self, votes, activations, count, return_history=False):
        """The whole procedure, for a layer that makes no votes.

        where:
          votes: a `SharedVotes`, or `[N, O, I, D]`; activations: `[N, I]`; count: iterations.

        Returns poses `[N, O, D]` and activations `[N, O]`, and with `return_history` coefficients `[T, N, O, I]`.
        """
        votes = votes if isinstance(votes, SharedVotes) else _Votes(votes)
        return super()._route(votes, activations, count, return_history)

    _route = route

    def start(self, votes, activations):
        # [N, I] -> [N, O, I]
        parents = self.beta_use.shape[0]
        uniform = ops.repeat(ops.full_like(activations, 1.0 / parents)[:, None], parents, axis=1)
        return self._parents(uniform, votes, activations)

    def step(self, state, votes, activations, iteration):
        constant = ops.log_sigmoid(state["logits"]) - ops.sum(ops.log(state["variances"]), axis=2) / 2.0
        weights = constant[..., None] - votes.distances(state["poses"], state["variances"])
        return self._parents(ops.softmax(weights, axis=1), votes, activations)

    def finish(self, state, votes, activations):
        logits = state["logits"]
        return state["poses"], logits if self.logits else ops.sigmoid(logits)

    def _parents(self, coefficients, votes, activations):
        """The state of parents fitted to `coefficients`: x_j `[N, O]`, mu_j and s_j `[N, O, D]`."""
        used = coefficients * activations[:, None]
        if self.shared_betas:
            total, all_used = ops.mean(activations, axis=1, keepdims=True), ops.mean(used, axis=2)
            net = self.beta_use * all_used - self.beta_ignore * (total - all_used)
        else:
            net = self.beta_use * used - self.beta_ignore * (activations[:, None] - used)
            net = ops.sum(net, axis=2)
        poses, variances = votes.moments(used)
        return {"coefficients": coefficients, "logits": net, "poses": poses, "variances": variances}

    def get_config(self):
        return {**super().get_config(), "shared_betas": self.shared_betas, "logits": self.logits}


class _Votes:
    """Votes `[N, O, I, D]`, and what routing asks of them."""

    def __init__(self, votes):
        self.votes = votes

    def moments(self, used):
        """mu_j and s_j `[N, O, D]` of shares U_ij `[N, O, I]`."""
        weights = used / (ops.sum(used, axis=2, keepdims=True) + EPSILON)
        poses = row_times(weights, self.votes)
        squares = ops.square(deviations(self.votes, poses))
        return poses, row_times(weights, squares) + EPSILON

    def distances(self, poses, variances):
        """sum_h (V_ijh - mu_jh)^2 / (2 s_jh) `[N, O, I]`."""
        return times_column(ops.square(deviations(self.votes, poses)), 0.5 / variances)


class SharedVotes:
    """Votes V_ij = M_i W_j + B_j of children that share their matrices: they are never made.

    Means of votes are linear in the entries of a row of a pose, and variances and distances also in the products of
    two of them, of which there are fewer per child than D votes for each of O parents:

        x_i = M_i - mean of M over i,  b_j = mean of M over i W_j + B_j,  V_ij = x_i W_j + b_j
        y_i = the products x_ik x_il, k <= l,  Y_j = the products W_jkc W_jlc, twice them where k < l
        m_j, q_j = sums over i of U_ij x_i and U_ij y_i, by sum_i U_ij + epsilon
        mu_j = m_j W_j + (1 - t_j) b_j,  t_j = epsilon / (sum_i U_ij + epsilon)
        s_j = (q_j - (1 + t_j) (the products of m_j)) Y_j + t_j^2 b_j (2 m_j W_j + (1 - t_j) b_j) + epsilon
        sum_h (V_ijh - mu_jh)^2 / (2 s_jh) = y_i Y_j p_j - 2 x_i W_j (p_j o_j) + sum_h p_jh o_jh^2,
            p_j = 1 / (2 s_j),  o_j = mu_j - b_j

    for every row of a pose; a product of vectors of one entry for each column is taken entry by entry.

    where:
      poses: M_i `[N, I, rows, width]`; matrices: W_j `[O, width, columns]`; bias: B_j `[O, rows, columns]`.
      D: rows * columns; votes are listed row by row.

    Differences of large numbers are taken, but of deviations from the mean pose of the image.
    """

    def __init__(self, poses, matrices, bias):
        self.rows, self.width = poses.shape[2:]
        self.matrices = matrices
        self.pairs = np.triu_indices(self.width)
        first, second = (ops.take(matrices, index, axis=1) for index in self.pairs)
        # [O, pairs, columns]
        self.matrix_products = (
            np.where(np.equal(*self.pairs), 1.0, 2.0)[:, None].astype("float32") * first * second
        )
        centre = ops.mean(poses, axis=1, keepdims=True)
        # [N, 1, rows, width], [O, width, columns] -> [N, O, rows, columns]
        self.bias = ops.matmul(centre, matrices) + bias
        entries = poses - centre
        # [N, I, F] and [N, F, I]
        self.features = self._joined(self._products(entries), entries)
        self.transposed = ops.swapaxes(self.features, 1, 2)

    def moments(self, used):
        """mu_j and s_j `[N, O, D]` of shares U_ij `[N, O, I]`."""
        mass = ops.sum(used, axis=2, keepdims=True) + EPSILON
        rest = (EPSILON / mass)[..., None]
        # [N, O, I], [N, I, F] -> [N, O, F]
        products, entries = self._split(ops.matmul(used, self.features) / mass)
        offset = ops.matmul(entries, self.matrices)
        # [N, O, rows, pairs], [O, pairs, columns] -> [N, O, rows, columns]
        covariances = products - (1.0 + rest) * self._products(entries)
        variances = ops.matmul(covariances, self.matrix_products)
        variances = variances + rest**2 * self.bias * (2.0 * offset + (1.0 - rest) * self.bias)
        return self._flat(offset + (1.0 - rest) * self.bias), self._flat(
            ops.maximum(variances, 0.0) + EPSILON
        )

    def distances(self, poses, variances):
        """sum_h (V_ijh - mu_jh)^2 / (2 s_jh) `[N, O, I]`."""
        shape = -1, poses.shape[1], self.rows, self.matrices.shape[2]
        precision = 0.5 / ops.reshape(variances, shape)
        offset = ops.reshape(poses, shape) - self.bias
        products = ops.matmul(precision, ops.swapaxes(self.matrix_products, 1, 2))
        entries = -2.0 * ops.matmul(precision * offset, ops.swapaxes(self.matrices, 1, 2))
        constant = ops.sum(precision * ops.square(offset), axis=(2, 3))
        # [N, O, F], [N, F, I] -> [N, O, I]
        return ops.matmul(self._joined(products, entries), self.transposed) + constant[..., None]

    def _products(self, entries):
        """`[..., pairs]` of `[..., width]`."""
        first, second = (ops.take(entries, index, axis=-1) for index in self.pairs)
        return first * second

    def _joined(self, products, entries):
        """`[N, I, F]` of `[N, I, rows, pairs]` and `[N, I, rows, width]`."""
        parts = [
            ops.reshape(part, (-1, part.shape[1], math.prod(part.shape[2:]))) for part in (products, entries)
        ]
        return ops.concatenate(parts, axis=2)

    def _split(self, features):
        """`[N, O, rows, pairs]` and `[N, O, rows, width]` of `[N, O, F]`."""
        shape, pairs = (-1, features.shape[1], self.rows), len(self.pairs[0])
        products = ops.reshape(features[..., : self.rows * pairs], (*shape, pairs))
        return products, ops.reshape(features[..., self.rows * pairs :], (*shape, self.width))

    def _flat(self, values):
        # [N, O, rows, columns] -> [N, O, D]
        return ops.reshape(values, (-1, values.shape[1], self.rows * self.matrices.shape[2]))
