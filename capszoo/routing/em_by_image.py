"""EM routing as a graph, from poses to parents, one image after the other, see `by_image.py`.

The gradient is in closed form, so that its memory does not grow with the iterations. Each M-step is three sums over
children, of shares rho_ij = R_ij a_i: n_j, mu_j and var_j. With the gradients of mu_j, var_j and x_j known, and

    square_j = (d_var_j - lambda_t d_x_j n_j / (2 var_j)) / n_j
    linear_j = (d_mu_j - 2 floor square_j mu_j) / n_j              # floor: of the mass; deviations add to no zero
    constant_j = -lambda_t d_x_j (D beta_u_j + sum_d log(var_j) / 2) - sum_d square_j (var_j - 5e-4)

a share and a vote have the gradients

    d_rho_ij = constant_j + sum_d (linear_j (V_ij - mu_j) + square_j (V_ij - mu_j)^2)
    d_V_ij = rho_ij (linear_j + 2 square_j (V_ij - mu_j))

and a_i has sum_j R_ij d_rho_ij. Each E-step is a softmax over all parents of a child; its logits have the gradient

    h_ij = rho_ij (d_rho_ij - sum_k R_ik d_rho_ik)                 # k: all parents of child i

which goes on to the votes, -h_ij (V_ij - mu_j) / var_j, and to mu_j, var_j and x_j of the iteration before.
"""

import math

from keras import ops

from capszoo.routing.base import as_tensors
from capszoo.routing.by_image import by_image, deviations, row_times, times_column

LOG_2_PI = math.log(2.0 * math.pi)


def em_by_image(connections, scales, mass_floor, variance_floor):
    """EM routing, variant "paper" with logistic activations.

    where:
      connections: a `Connections`.
      scales: lambda_t of every iteration.
      mass_floor, variance_floor: added to each parent's amount of data and to each variance.

    Returns `route(poses, activations, matrices, betas)`, as `by_image`, with `[O]` each of beta_u and beta_a.
    Source: Hinton et al. 2018, Procedure 1.
    """
    scales = [float(scale) for scale in scales]

    def route(poses, activations, matrices, betas):
        betas = as_tensors(betas)

        def procedure(votes, *inputs):
            procedure = _Procedure(votes, connections.uniform, scales, mass_floor, variance_floor)
            mean, logits = procedure(*inputs, *betas)
            return mean, ops.sigmoid(logits)

        return by_image(connections, procedure)(poses, activations, matrices)

    return route


class _Procedure:
    """All iterations for some images at once, a function with its own gradient.

    Takes poses `[b, C, D]`, activations `[b, C]`, matrices `[I, width, O * width]`, and `[O]` each of beta_u and
    beta_a.
    Returns mu_j `[N, O, D]` and x_j `[N, O]` of the last iteration, N being all positions of all images.
    """

    def __init__(self, votes, uniform, scales, mass_floor, variance_floor):
        self.votes, self.children, self.uniform = votes, votes.children, uniform
        self.scales, self.mass_floor, self.variance_floor = scales, mass_floor, variance_floor
        self.differentiable = ops.custom_gradient(self._differentiable)

    def __call__(self, *inputs):
        return self.differentiable(*inputs)

    def _differentiable(self, poses, activations, matrices, *betas):
        seen = self.children.seen(activations)
        votes, fits, squares = self.votes.of(self.votes.rows(poses), matrices), [], None
        for t, scale in enumerate(self.scales):
            coefficients = self._softmax(fits[-1], squares) if t else self._uniform(seen)
            fit, squares = self._m_step(coefficients, votes, seen, betas, scale)
            fits.append(fit)

        def gradient(*upstream):
            # JAX hands over the gradients of all results as one argument.
            upstream = upstream if len(upstream) == 2 else upstream[0]
            return self._backward(poses, activations, matrices, betas, fits, *upstream)

        return (fits[-1]["mean"], fits[-1]["logits"]), gradient

    def _uniform(self, seen):
        """R_ij of iteration 0, `[N, 1, I]`: the same for all types of parents."""
        # [N, I] -> [b, P, I]
        like = ops.reshape(ops.ones_like(seen), (-1, *self.uniform.shape))
        return ops.reshape(like * self.uniform, (-1, 1, self.uniform.shape[1]))

    def _m_step(self, coefficients, votes, activations, betas, scale):
        """The parents fitted to `coefficients`, and (V_ij - mu_j)^2 `[N, O, I, D]`."""
        beta_u, beta_a = betas
        share = coefficients * activations[:, None]
        mass = ops.sum(share, axis=2) + self.mass_floor
        weight = share / mass[..., None]
        mean = row_times(weight, votes)
        squares = ops.square(deviations(votes, mean))
        variance = row_times(weight, squares) + self.variance_floor
        log_variance = ops.sum(ops.log(variance), axis=2) / 2.0
        logits = scale * (beta_a - mass * (votes.shape[3] * beta_u + log_variance))
        fit = {"coefficients": coefficients, "mass": mass, "mean": mean, "variance": variance}
        return {**fit, "log_variance": log_variance, "logits": logits}, squares

    def _softmax(self, fit, squares):
        """R_ij `[N, O, I]` of the parents of `fit`."""
        distance = times_column(squares, 0.5 / fit["variance"])
        constant = ops.log_sigmoid(fit["logits"]) - fit["log_variance"] - squares.shape[3] / 2.0 * LOG_2_PI
        weights = constant[..., None] - distance
        # First over the types of parents at one position, then over the positions that see the child.
        highest = ops.max(weights, axis=1, keepdims=True)
        shares = ops.exp(weights - highest)
        total = highest[:, 0] + ops.log(ops.sum(shares, axis=1))
        return shares * ops.exp(highest - self.children.logsumexp(total)[:, None])

    def _backward(self, poses, activations, matrices, betas, fits, d_mean, d_logits):
        """Gradients of all inputs, from those of the last mu_j and x_j."""
        rows, activations = self.votes.rows(poses), self.children.seen(activations)
        votes = self.votes.of(rows, matrices)
        d_variance, h = ops.zeros_like(d_mean), None
        d_votes, d_activations, d_beta_u, d_beta_a = 0.0, 0.0, 0.0, 0.0
        for fit, scale in zip(reversed(fits), reversed(self.scales), strict=True):
            deviation = deviations(votes, fit["mean"])
            squares = ops.square(deviation)
            if h is not None:
                d_mean, d_variance, d_logits = _through_softmax(h, fit, deviation, squares)
                # [N, O, I], [N, O, D] -> [N, O, I, D]
                d_votes -= h[..., None] * (deviation / fit["variance"][:, :, None])
            d_scaled, share = scale * d_logits, fit["coefficients"] * activations[:, None]
            constant, linear, square = self._share_gradient(fit, betas, d_mean, d_variance, d_scaled)
            d_share = constant[..., None] + times_column(deviation, linear) + times_column(squares, square)
            d_votes += share[..., None] * (linear[:, :, None] + 2.0 * square[:, :, None] * deviation)
            d_activation = ops.sum(fit["coefficients"] * d_share, axis=1)
            h = share * (d_share - self.children.sum(d_activation)[:, None])
            d_activations += d_activation
            d_beta_u -= votes.shape[3] * ops.sum(d_scaled * fit["mass"], axis=0)
            d_beta_a += ops.sum(d_scaled, axis=0)
        d_votes = self.votes.to_rows(d_votes)
        d_rows, d_matrices = (
            ops.matmul(d_votes, ops.swapaxes(matrices, 1, 2)),
            ops.matmul(ops.swapaxes(rows, 1, 2), d_votes),
        )
        # [I, N * row, width] -> [N, I, D]
        d_poses = ops.swapaxes(ops.reshape(d_rows, (d_rows.shape[0], -1, votes.shape[3])), 0, 1)
        d_poses, d_activations = (self.children.total(part) for part in (d_poses, d_activations))
        return d_poses, d_activations, d_matrices, d_beta_u, d_beta_a

    def _share_gradient(self, fit, betas, d_mean, d_variance, d_scaled):
        """constant_j `[N, O]`, linear_j and square_j `[N, O, D]` of an M-step."""
        mass, variance = fit["mass"][..., None], fit["variance"]
        square = (d_variance - d_scaled[..., None] * mass / (2.0 * variance)) / mass
        linear = (d_mean - 2.0 * self.mass_floor * square * fit["mean"]) / mass
        cost = variance.shape[2] * betas[0] + fit["log_variance"]
        constant = -d_scaled * cost - ops.sum(square * (variance - self.variance_floor), axis=2)
        return constant, linear, square


def _through_softmax(h, fit, deviation, squares):
    """Gradients of mu_j, var_j and x_j of `fit`, where the logits of the softmax after it have the gradient `h`."""
    precision, density = 1.0 / fit["variance"], ops.sum(h, axis=2)
    d_mean = row_times(h, deviation) * precision
    d_variance = (row_times(h, squares) * precision - density[..., None]) * precision / 2.0
    return d_mean, d_variance, density * ops.sigmoid(-fit["logits"])
