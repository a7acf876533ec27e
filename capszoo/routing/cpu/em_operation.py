"""EM and variational-Bayes routing of capsules with poses, compiled, as operations of the backend."""

import keras
import numpy as np

from capszoo.routing.cpu import em_backward, em_forward
from capszoo.routing.cpu.compiling import forget_stale
from capszoo.routing.cpu.operation import from_lanes, kernels_of, matrices_to_lanes, padded
from capszoo.routing.cpu.votes import problem_of

# Of the sums that variances are made of; it is taken away again where they become scatters.
VARIANCE_FLOOR = 5e-4

forget_stale(em_forward.forward_chunk, em_backward.backward_chunk)


def fused_em(connections, scales, mass_floor, variance_floor, damping=0.0, groups=0):
    """EM routing with logistic activations of votes V = M W + addition.

    where:
      connections: a `Connections`.
      scales: lambda_t of every iteration.
      mass_floor, variance_floor: added to each parent's amount of data and to each variance.
      damping: the previous mean's share of a mean.
      groups: types of children, where the coefficients of a child sum to one for every type of parent; else 0.

    Returns `route(poses, activations, matrices, beta_u, beta_a)`, which takes poses `[B, C, 16]`, activations `[B, C]`,
    transformations `[matrices, width, O, width]`, and `[O]` each of beta_u and beta_a, and returns mu_j
    `[B, P, O, 16]` and a_j `[B, P, O]`.
    Source: Hinton et al. 2018, Procedure 1; the gradient is its derivative, written out in `em_backward`.
    """
    scales = np.asarray(scales, "float32")
    own = scales, np.float32(mass_floor), np.float32(variance_floor), False, np.float32(damping), groups

    def route(poses, activations, matrices, beta_u, beta_a):
        problem = em_forward.Problem(
            *problem_of(connections, activations, matrices), connections.uniform, *own
        )
        arrays = poses, activations, matrices_to_lanes(matrices), padded(beta_u), padded(beta_a)
        return from_lanes(*_operation(problem)(*arrays), problem.child.shape[0], problem.types)

    return route


def fused_variational_bayes(connections, count, logits):
    """Variational-Bayes routing of votes V = M W + addition.

    where:
      connections: a `Connections`, but for its coefficients of iteration 0.
      count: M-steps.
      logits: whether x_j is returned in place of a_j.

    Returns `route`, as `fused_em`.
    Source: De Sousa Ribeiro et al. 2020, Algorithm 1; what differs from EM routing is in `posterior`.
    """
    own = np.ones(count, "float32"), np.float32(1.0), np.float32(VARIANCE_FLOOR), True, np.float32(0.0), 0

    def route(poses, activations, matrices, beta_u, beta_a):
        uniform = np.full(connections.child.shape, 1.0 / matrices.shape[2], "float32")
        problem = em_forward.Problem(*problem_of(connections, activations, matrices), uniform, *own)
        arrays = poses, activations, matrices_to_lanes(matrices), padded(beta_u), padded(beta_a)
        found = _operation(problem)(*arrays)
        activation = keras.activations.linear if logits else keras.activations.sigmoid
        return from_lanes(*found, problem.child.shape[0], problem.types, activation)

    return route


def _operation(problem):
    kernels = em_forward.forward_chunk, em_backward.backward_chunk
    return kernels_of(problem, em_forward.Inputs, *kernels, fit=em_forward.Fit)
