"""EM routing: parents are Gaussians, fitted to the votes of their children."""

import math

import keras
import numpy as np
from keras import ops

from capszoo.routing.base import Routing, as_tensors
from capszoo.routing.em_by_image import em_by_image
from capszoo.routing.em_coefficients import LEAST
from capszoo.routing.neighbourhood import NOTHING

# Added to each variance, as in the authors' code: a parent that explains a single vote would else have none.
VARIANCE_FLOOR = 5e-4
# Added to each parent's amount of data. The authors' code has the larger one for class capsules.
MASS_FLOOR, DENSE_MASS_FLOOR = 1e-7, 1e-5
# How much of the previous mean the authors' code keeps, and what it multiplies beta_a with.
DAMPING, OFFICIAL_ACTIVATION_SCALE = 0.1, 5000.0
LOG_2_PI = math.log(2.0 * math.pi)


@keras.saving.register_keras_serializable(package="capszoo")
class EMRouting(Routing):
    """Fits each parent, a Gaussian, to the votes of its children, and shares each child among its parents.

        R_ij = 1 / |parents of i|                                          # Procedure 1, line 2
        repeat for t = 0 .. num_iterations - 1:
            n_j = sum_i R_ij * a_i                                         # M-step
            mu_j = sum_i R_ij * a_i * V_ij / n_j
            var_j = sum_i R_ij * a_i * (V_ij - mu_j)^2 / n_j + 5e-4
            x_j = lambda_t * (beta_a_j - n_j * sum_d (beta_u_j + log(var_j) / 2))
            a_j = 1 / (1 + exp(-x_j))
            z_ij = log(a_j) - sum_d (log(2 pi var_j) + (V_ij - mu_j)^2 / var_j) / 2        # E-step
            R_ij = exp(z_ij) / sum_k exp(z_ik)                             # k: all parents of child i

    where:
      V_ij: `votes[B, ..., I, O, D]`; a_i: `activations[B, ..., I]`, in [0, 1].
      R_ij: coefficients `[B, ..., I, O]`. A child of a convolutional layer has parents of all O types at several
        positions; its coefficients sum to one over all of them. `neighbourhood` says which they are.
      neighbourhood: a `Neighbourhood`, set by the layer that makes the votes: `...` is then its parent grid, and I
        its taps times the types of children, the types fastest. None where all children see the same parents.
      mu_j: parent poses `[B, ..., O, D]`; var_j: their variances; n_j: the amount of data assigned to a parent.
      a_j: parent activations `[B, ..., O]`, in [0, 1].
      lambda_t: final_lambda * (1 - 0.95^(t + 1)).
      beta_u, beta_a: `[O]`, one per type of parent, of the given initial values.
      variant: "paper" as above, or "official", which is what the authors' code computes:
        mu_j is 9/10 of the above and 1/10 of the previous mu_j (at first zero);
        x_j = lambda_t * (-n_j * (sum_d log(var_j) + beta_u_j * D * (1 + log(2 pi))) - 5000 * beta_a_j), with a
        quarter of lambda_t where there is no neighbourhood;
        in a neighbourhood R_ij = 1 / O at first, and then exp(z_ij - m_j) / (sum_k exp(z_ik - m_j) + 1e-7) over the
        positions k of type j, m_j the largest z of the two types in the whole image: types do not compete. A child's
        coefficients sum to one for every type, so to O together; but to far less where its parents of a type all
        lie 16 nats or more, -log(1e-7), below the best pair of that type (1 to 6 % of the children and types of
        `matrix_em_mnist` lose more than half, some all).
      activation: "logistic" as above, or "mixing": a_j = n_j / sum_k n_k over all parents of the layer, all types
        and positions. There are no parameters then.

    It computes with positions last, the order in which layers make votes: every operation then runs along contiguous
    positions, and no tensor of the size of the votes is ever transposed.

    a_j, z_ij and the sums that normalise coefficients stay logarithms; R_ij and n_j are numbers. The E-step after the
    last M-step, which nothing would use, is left out.
    Errors: `ValueError` for an unknown variant or activation, for a final_lambda that is not positive, for votes of
    rank below 4, for missing activations, and for votes that are not those of the neighbourhood.
    Source: Hinton et al. 2018, Procedure 1; lambda_t, the variance floor and "official" from the authors' code;
    "mixing" from section 5.
    Differs from the paper: the floors 5e-4 of var_j and 1e-7 of n_j (1e-5 without a neighbourhood). Beside equations
    1 and 2, Procedure 1 leaves out a constant of the cost, which beta_u absorbs. There is a beta_a for each type, as in
    the authors' code, where the paper has once one for all capsules and once one for each. Differs from the authors'
    code: with a stride above one it mixes different children in the sums of the E-step; here they are a child's own.
    """

    neighbourhood = None
    variance_floor = VARIANCE_FLOOR

    def __init__(
        self,
        num_iterations=3,
        variant="paper",
        activation="logistic",
        final_lambda=0.01,
        beta_u=0.5,
        beta_a=0.5,
        **kwargs,
    ):
        super().__init__(num_iterations=num_iterations, **kwargs)
        if variant not in ("paper", "official"):
            raise ValueError(f"variant must be 'paper' or 'official'. Received: {variant!r}")
        if activation not in ("logistic", "mixing"):
            raise ValueError(f"activation must be 'logistic' or 'mixing'. Received: {activation!r}")
        if not final_lambda > 0:
            raise ValueError(f"final_lambda must be positive. Received: {final_lambda!r}")
        self.variant = variant
        self.activation = activation
        self.final_lambda = final_lambda
        self.initial_betas = {"beta_u": beta_u, "beta_a": beta_a}

    def build(self, votes_shape):
        votes_shape = tuple(votes_shape)
        if len(votes_shape) < 4:
            raise ValueError(f"votes must be [B, ..., I, O, D]. Received shape: {votes_shape}")
        if self.neighbourhood is not None:
            taps, grid = self.neighbourhood.taps, self.neighbourhood.parent_grid
            if len(votes_shape) != 6 or votes_shape[1:3] != grid or votes_shape[3] % taps:
                expected = f"votes of the grid {grid} and a multiple of {taps} children are needed"
                raise ValueError(f"{expected}. Received shape: {votes_shape}")
        if self.activation == "logistic":
            self.parent_count = votes_shape[-2]
            for name, value in self.initial_betas.items():
                initializer = keras.initializers.Constant(value)
                weight = self.add_weight(name=name, shape=(votes_shape[-2],), initializer=initializer)
                setattr(self, name, weight)

    def call(self, votes, activations=None, num_iterations=None, return_history=False, positions_last=False):
        expected = (votes.shape[0], *votes.shape[3:]) if positions_last else votes.shape[:-2]
        self.require_activations(activations, expected)
        if not positions_last:
            votes = ops.moveaxis(votes, (-3, -2, -1), (0, 1, 2))
            activations = ops.moveaxis(activations, -1, 0)
        (children, parents, dimensions), grid = votes.shape[:3], votes.shape[4:]
        self.require_parents(parents)
        votes = ops.reshape(votes, (children, parents, dimensions, -1))
        activations = ops.reshape(activations, (children, -1))
        poses, activations, *history = self.routed(votes, activations, num_iterations, return_history)
        poses = ops.reshape(poses, (parents, dimensions, -1, *grid))
        activations = ops.reshape(activations, (parents, -1, *grid))
        history = [ops.reshape(item, (item.shape[0], children, parents, -1, *grid)) for item in history]
        if not positions_last:
            poses = ops.moveaxis(poses, (0, 1), (-2, -1))
            activations = ops.moveaxis(activations, 0, -1)
            history = [ops.moveaxis(item, (1, 2), (-2, -1)) for item in history]
        return (poses, activations, *history)

    def start(self, votes, activations):
        return self.m_step(self.uniform(votes), 0.0, votes, activations, self.betas(), 0)

    def step(self, state, votes, activations, iteration):
        coefficients = self.e_step(state, votes)
        return self.m_step(coefficients, state["mean"], votes, activations, self.betas(), iteration)

    def finish(self, state, votes, activations):
        logits = state["logits"]
        return state["mean"], ops.exp(logits) if self.activation == "mixing" else ops.sigmoid(logits)

    def betas(self):
        """beta_u and beta_a `[O]` as tensors; nothing where activations are mixing proportions."""
        if self.activation == "mixing":
            return ()
        return as_tensors((self.beta_u, self.beta_a))

    def m_step(self, coefficients, previous_mean, votes, activations, betas, iteration):
        """Parents fitted to `coefficients`: the state after this iteration."""
        share = coefficients * ops.expand_dims(activations, 1)
        mass = ops.sum(share, axis=0) + self.mass_floor
        # Normalised before the sums: [I, O, N] is cheaper to divide than it is to keep the sums in range.
        weight = ops.expand_dims(share / mass, 2)
        mean = ops.sum(weight * votes, axis=0)
        if self.variant == "official":
            mean = (1.0 - DAMPING) * mean + DAMPING * previous_mean
        variance = ops.sum(weight * ops.square(votes - mean), axis=0) + VARIANCE_FLOOR
        logits = self._logits(mass, variance, betas, iteration)
        state = {"coefficients": coefficients, "mean": mean, "variance": variance, "mass": mass}
        return {**state, "logits": logits}

    def e_step(self, state, votes):
        """R_ij `[I, O, N]` of the parents in `state`."""
        deviation = ops.square(votes - state["mean"])
        distance = ops.sum(deviation * (0.5 / state["variance"]), axis=2)
        constant = ops.sum(LOG_2_PI + ops.log(state["variance"]), axis=1) / 2.0
        return self._normalise(self._log_activations(state["logits"]) - constant - distance)

    def _logits(self, mass, variance, betas, iteration):
        """x_j `[O, N]`; for mixing proportions log(a_j)."""
        if self.activation == "mixing":
            positions = math.prod(self.neighbourhood.parent_grid) if self.neighbourhood else 1
            # [O, N] -> [O, B, positions]
            mass = ops.reshape(mass, (mass.shape[0], -1, positions))
            total = ops.sum(mass, axis=(0, 2), keepdims=True)
            return ops.reshape(ops.log(mass / total), (mass.shape[0], -1))
        temperature = self.temperature(ops.cast(iteration, self.compute_dtype))
        dimensions = variance.shape[1]
        beta_u, beta_a = (ops.expand_dims(beta, 1) for beta in betas)
        log_variance = ops.sum(ops.log(variance), axis=1)
        if self.variant == "paper":
            return temperature * (beta_a - mass * (dimensions * beta_u + log_variance / 2.0))
        if not self.neighbourhood:
            temperature = temperature / 4.0
        cost = log_variance + dimensions * (LOG_2_PI + 1.0) * beta_u
        return -temperature * (mass * cost + OFFICIAL_ACTIVATION_SCALE * beta_a)

    def temperature(self, iteration):
        """lambda_t of an iteration, a number, an array or a tensor."""
        return self.final_lambda * (1.0 - 0.95 ** (iteration + 1.0))

    @property
    def mass_floor(self):
        """What is added to each parent's amount of data n_j."""
        return MASS_FLOOR if self.neighbourhood else DENSE_MASS_FLOOR

    @property
    def fusible(self):
        """See `Routing.fusible`."""
        return self.activation == "logistic"

    @property
    def routes_by_image(self):
        """See `Routing.routes_by_image`."""
        return self.fusible

    def fused(self, connections, count):
        """See `Routing.fused`."""
        from capszoo.routing.cpu.em_operation import fused_em

        return self._from_poses(fused_em, connections, count)

    def by_image(self, connections, count):
        """See `Routing.by_image`."""
        return self._from_poses(em_by_image, connections, count)

    def _from_poses(self, form, connections, count):
        """The routing from poses to parents as `form`, compiled or by image, makes it of the paper's logits."""
        scales, floors = self.temperature(np.arange(count)), (self.mass_floor, self.variance_floor)
        if self.variant == "paper":
            route = form(connections, scales, *floors)
            return lambda poses, activations, matrices: route(poses, activations, matrices, *self.betas())

        groups = 0
        if self.neighbourhood:
            groups = connections.child.shape[1] // self.neighbourhood.taps
            uniform = np.full_like(connections.uniform, 1.0 / self.beta_u.shape[0])
            connections = connections._replace(uniform=uniform)
        # The authors' logits, see `_logits`, are the paper's of twice the lambda and of other betas.
        scales = 2.0 * scales if self.neighbourhood else scales / 2.0
        route = form(connections, scales, *floors, DAMPING, groups)

        def of_authors(poses, activations, matrices):
            beta_u, beta_a = self.betas()
            betas = (LOG_2_PI + 1.0) / 2.0 * beta_u, -OFFICIAL_ACTIVATION_SCALE / 2.0 * beta_a
            return route(poses, activations, matrices, *betas)

        return of_authors

    def _log_activations(self, logits):
        return logits if self.activation == "mixing" else ops.log_sigmoid(logits)

    def uniform(self, votes):
        """R_ij of iteration 0, `[I, O, N]`."""
        coefficients = ops.full_like(votes[:, :, 0], 1.0 / votes.shape[1])
        if not self.neighbourhood or self.variant == "official":
            return coefficients
        share = self.neighbourhood.unfold(1.0 / np.maximum(self.neighbourhood.num_parents(), 1))
        # [I, O, N] -> [taps, types * O * B, H', W']
        by_tap = ops.reshape(coefficients, (self.neighbourhood.taps, -1, *self.neighbourhood.parent_grid))
        by_tap = by_tap * ops.expand_dims(ops.cast(share, self.compute_dtype), 1)
        return ops.reshape(by_tap, (*votes.shape[:2], -1))

    def _normalise(self, weights):
        """R_ij of z_ij, `[I, O, N]` both."""
        if self.neighbourhood and self.variant == "official":
            return self._over_positions(weights)
        total = ops.logsumexp(weights, axis=1, keepdims=True)
        if self.neighbourhood:
            # So far over the types of parents at one position; now over the positions that see the child.
            total = self._by_child(total, ops.logsumexp, NOTHING)
        return ops.exp(weights - total)

    def _by_child(self, seen, reduce, nothing):
        by_tap = ops.reshape(seen, (self.neighbourhood.taps, -1, *self.neighbourhood.parent_grid))
        total = reduce(self.neighbourhood.fold(by_tap, nothing), axis=0)
        return ops.reshape(self.neighbourhood.unfold(total), (seen.shape[0], 1, -1))

    def _over_positions(self, weights):
        """The authors' sums: over the positions of a child's parents, one type of parent at a time."""
        by_tap = ops.reshape(weights, (self.neighbourhood.taps, -1, *self.neighbourhood.parent_grid))
        highest = ops.max(by_tap, axis=(0, 2, 3), keepdims=True)
        shares = ops.exp(by_tap - highest)
        total = ops.sum(self.neighbourhood.fold(shares, 0.0), axis=0)
        shares = shares / (self.neighbourhood.unfold(total) + LEAST)
        return ops.reshape(shares, (*weights.shape[:2], -1))

    def get_build_config(self):
        """None: the layer around it builds a routing, with the neighbourhood that only that layer knows."""
        return None

    def get_config(self):
        return {
            **super().get_config(),
            "variant": self.variant,
            "activation": self.activation,
            "final_lambda": self.final_lambda,
            **self.initial_betas,
        }
