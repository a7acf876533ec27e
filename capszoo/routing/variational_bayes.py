"""Variational-Bayes routing: parents are Gaussians of which not a point but a posterior is fitted to the votes."""

import math

import keras
import numpy as np
from keras import ops

from capszoo.routing.by_image import Children, deviations, row_times, times_column
from capszoo.routing.by_position import _RoutingByPosition
from capszoo.routing.digamma import digamma


@keras.saving.register_keras_serializable(package="capszoo")
class VariationalBayesRouting(_RoutingByPosition):
    """Fits a posterior over each parent, a Gaussian, to its votes, and shares each child among its parents.

        R_ij = 1 / O
        repeat for t = 0 .. num_iterations - 1:
            N_j = sum_i R_ij * a_i                                                  # M-step
            alpha_j = 1 + N_j, kappa_j = 1 + N_j, nu_j = D + 1 + N_j
            mu_j = sum_i R_ij * a_i * V_ij / N_j
            m_j = N_j * mu_j / kappa_j
            s_j = 1 + sum_i R_ij * a_i * (V_ij - mu_j)^2 + N_j / kappa_j * mu_j^2
            l_j = psi(alpha_j) - psi(sum of alpha over the types at the position of j)          # E ln pi_j
            d_j = sum_{h < D} psi((nu_j - h) / 2) + D ln 2 - sum_h ln s_jh                      # E ln |Lambda_j|
            z_ij = l_j + (d_j - D ln(2 pi) - D / kappa_j - nu_j sum_h (V_ijh - m_jh)^2 / s_jh) / 2  # E-step
            R_ij = exp(z_ij) / sum_k exp(z_ik)                                      # k: all parents of child i
        x_j = beta_a_j - (exp(l_j) * H_j + beta_u_j),  H_j = (D ln(2 pi e) - d_j) / 2
        a_j = 1 / (1 + exp(-x_j))

    where:
      V_ij: `votes[B, ..., I, O, D]`; a_i: `activations[B, ..., I]`, in [0, 1].
      R_ij: coefficients `[B, ..., I, O]`. A child of a convolutional layer has parents of all O types at several
        positions; its coefficients sum to one over all of them, but for the first, which sum to one at each position.
      neighbourhood: a `Neighbourhood`, set by the layer that makes the votes: `...` is then its parent grid, and I
        its taps times the types of children, the types fastest. None where all children see the same parents.
      alpha_j, kappa_j, nu_j, m_j, s_j: the posterior: a Dirichlet distribution of the proportions pi of the types at a
        position, and a Gaussian and a Wishart distribution of a parent's mean and its diagonal precision Lambda_j,
        s_j being the diagonal of the Wishart's inverse scale matrix. Each 1, and D + 1, is of the prior, of mean zero.
      m_j: parent poses `[B, ..., O, D]`; a_j: parent activations `[B, ..., O]`.
      beta_u, beta_a: `[O]`, one per type of parent, at first zero. Only their difference matters.
      logits: returns x_j instead of a_j, for a layer that normalises it first.
      psi: the digamma function, see `digamma`.

    Nothing is divided by N_j, which is zero for a parent whose children are silent: m_j is sum_i R_ij * a_i * V_ij /
    kappa_j, and s_j is 1 + sum_i R_ij * a_i * (V_ij - m_j)^2 + m_j^2. Of z_ij, whose exponents are never taken but of
    differences, -D ln(2 pi) / 2 is left out, and the E-step after the last M-step, which nothing would use.
    Errors: `ValueError` for votes of rank below 4, for missing activations, and for votes that are not those of the
    neighbourhood.
    Source: De Sousa Ribeiro, Leontidis and Kollias 2020, "Capsule routing via variational Bayes", Algorithm 1; priors,
    the first R_ij, and d_j as of a full Wishart distribution, from the authors' code.
    Differs from the authors' code: it normalises R_ij as numbers, of which it clips the sum.
    """

    order_matters = False
    neighbourhood = None

    def __init__(self, num_iterations=3, logits=False, **kwargs):
        super().__init__(num_iterations=num_iterations, **kwargs)
        self.logits = logits

    def build(self, votes_shape):
        super().build(votes_shape)
        self.parent_count = votes_shape[-2]
        children, parents, _ = votes_shape[-3:]
        if self.neighbourhood is None:
            self.children = Children(np.arange(children)[None], children)
        else:
            self.children = self._children_on_grid(votes_shape)
        for name in ("beta_u", "beta_a"):
            setattr(self, name, self.add_weight(name=name, shape=(parents,), initializer="zeros"))

    def _children_on_grid(self, votes_shape):
        place = self.neighbourhood
        types, rest = divmod(votes_shape[-3], place.taps)
        if tuple(votes_shape[1:-3]) != place.parent_grid or rest:
            expected = (
                f"votes of the grid {place.parent_grid} and a multiple of {place.taps} children are needed"
            )
            raise ValueError(f"{expected}. Received shape: {tuple(votes_shape)}")
        return Children(place.children(types), math.prod(place.child_grid) * types)

    @property
    def fusible(self):
        """See `Routing.fusible`."""
        return True

    def fused(self, connections, count):
        """See `Routing.fused`."""
        from capszoo.routing.cpu.em_operation import fused_variational_bayes

        route = fused_variational_bayes(connections, count, self.logits)
        return lambda poses, activations, matrices: route(
            poses, activations, matrices, self.beta_u, self.beta_a
        )

    def start(self, votes, activations):
        coefficients = ops.full_like(votes[..., 0], 1.0 / votes.shape[1])
        return self._posterior(coefficients, votes, activations)

    def step(self, state, votes, activations, iteration):
        kappa, scatter = 1.0 + state["mass"], state["scatter"]
        precision = (_degrees(state) / 2.0)[..., None] / scatter
        distance = times_column(state["squares"], precision)
        constant = _log_proportions(state) + (_log_determinant(state) - scatter.shape[2] / kappa) / 2.0
        return self._posterior(self._shares(constant[..., None] - distance), votes, activations)

    def finish(self, state, votes, activations):
        dimensions = votes.shape[3]
        entropy = (dimensions * math.log(2.0 * math.pi * math.e) - _log_determinant(state)) / 2.0
        logits = self.beta_a - (ops.exp(_log_proportions(state)) * entropy + self.beta_u)
        return state["poses"], logits if self.logits else ops.sigmoid(logits)

    def _posterior(self, coefficients, votes, activations):
        """The state of parents that are fitted to `coefficients`: N_j `[N, O]`, m_j and s_j `[N, O, D]`.

        `squares` are (V_ij - m_j)^2.
        """
        share = coefficients * activations[:, None]
        mass = ops.sum(share, axis=2)
        poses = row_times(share, votes) / (1.0 + mass)[..., None]
        squares = ops.square(deviations(votes, poses))
        scatter = 1.0 + row_times(share, squares) + ops.square(poses)
        state = {"coefficients": coefficients, "mass": mass, "poses": poses}
        return {**state, "scatter": scatter, "squares": squares}

    def _shares(self, weights):
        """R_ij of z_ij, `[N, O, I]` both."""
        # First over the types of parents at one position, then over the positions that see the child.
        total = self.children.logsumexp(ops.logsumexp(weights, axis=1))
        return ops.exp(weights - total[:, None])

    def get_config(self):
        return {**super().get_config(), "logits": self.logits}


def _degrees(state):
    """nu_j, the degrees of freedom of the Wishart distribution: above D, so that d_j is finite."""
    return state["scatter"].shape[2] + 1.0 + state["mass"]


def _log_proportions(state):
    """l_j `[N, O]`."""
    alpha = 1.0 + state["mass"]
    return digamma(alpha) - digamma(ops.sum(alpha, axis=1, keepdims=True))


def _log_determinant(state):
    """d_j `[N, O]`."""
    scatter = state["scatter"]
    halves = ops.cast(np.arange(scatter.shape[2]) / 2.0, scatter.dtype)
    digammas = digamma((_degrees(state) / 2.0)[..., None] - halves)
    return ops.sum(digammas + math.log(2.0) - ops.log(scatter), axis=2)
