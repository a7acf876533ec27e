"""EM routing of matrix capsules by its kernel."""

import numpy as np

from capszoo.routing.cpu import em_backward, em_forward
from capszoo.routing.cpu.compiling import forget_stale
from capszoo.routing.cpu.lanes import LANES
from capszoo.routing.cpu.operation import from_lanes, matrices_to_lanes, operation, padded
from capszoo.routing.cpu.votes import Inputs, Problem

forget_stale(em_forward.forward_chunk, em_backward.backward_chunk)


def fused_em(connections, scales, mass_floor, variance_floor):
    """EM routing, variant "paper" with logistic activations, of votes V = M W + addition between 4x4 matrices.

    where:
      connections: a `Connections`.
      scales: lambda_t of every iteration.
      mass_floor, variance_floor: added to each parent's amount of data and to each variance.

    Returns `route(poses, activations, matrices, beta_u, beta_a)`, which takes poses `[B, C, 16]`, activations `[B, C]`,
    transformations `[matrices, 4, O, 4]`, and `[O]` each of beta_u and beta_a, and returns mu_j `[B, P, O, 16]` and
    a_j `[B, P, O]`.
    Source: Hinton et al. 2018, Procedure 1; the gradient is its derivative, written out in `em_backward`.
    """
    child, matrix, addition, uniform = connections
    scales = np.asarray(scales, "float32")

    def route(poses, activations, matrices, beta_u, beta_a):
        (positions, _), types = child.shape, beta_u.shape[0]
        problem = Problem(
            child,
            matrix,
            addition,
            uniform,
            scales,
            activations.shape[1],
            -(-types // LANES),
            types,
            np.float32(mass_floor),
            np.float32(variance_floor),
        )
        arrays = poses, activations, matrices_to_lanes(matrices), padded(beta_u), padded(beta_a)
        return from_lanes(*_operation(problem)(*arrays), positions, types)

    return route


def _operation(problem):
    count = len(problem.scales)

    def forward(*arrays):
        images = len(arrays[0])
        fit = em_forward.forward(problem, _flat(arrays), images)
        last = (_last(array, images, count) for array in (fit.mean, fit.logits))
        return *last, *fit

    def backward(d_mean, d_logits, inputs, kept):
        fit = em_forward.Fit(*kept)
        return em_backward.backward(problem, _flat(inputs), fit, d_mean, d_logits, len(inputs[0]))

    return operation(forward, backward, saved=len(em_forward.Fit._fields))


def _last(array, images, count):
    """Of the last iteration: `[B, T, ...]` -> `[B, ...]`, both flat."""
    # The sizes in full: of no images NumPy cannot infer one.
    return np.ascontiguousarray(array.reshape(images, count, array.size // max(1, images * count))[:, -1])


def _flat(arrays):
    return Inputs(*(array.ravel() for array in arrays))
