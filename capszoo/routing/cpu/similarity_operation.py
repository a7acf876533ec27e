"""Similarity-learning routing of capsules with poses, compiled, as an operation of the backend."""

from keras import ops

from capszoo.routing.cpu import similarity
from capszoo.routing.cpu.compiling import forget_stale
from capszoo.routing.cpu.operation import from_lanes, kernels_of, matrices_to_lanes, padded
from capszoo.routing.cpu.votes import problem_of

forget_stale(similarity.forward_chunk, similarity.backward_chunk)


def fused_similarity(connections, count):
    """Similarity-learning routing, with Gaussians, of votes V = M W + addition.

    where:
      connections: a `Connections`.
      count: updates of the coefficients.

    Returns `route(poses, log_activations, matrices, types, weights, precisions)`, which takes poses `[B, C, 16]`,
    log(a_i) `[B, C]`, transformations `[matrices, width, O, width]`, alpha, beta, theta1, theta2 and theta3, each
    `[O]`, and w_q and 1 / sigma_q^2, each `[components]`; it returns mu_j `[B, P, O, 16]` and a_j `[B, P, O]`.
    Source: Faria 2019, equations 11 to 13; the gradient is their derivative, written out in `similarity`.
    """

    def route(poses, log_activations, matrices, types, weights, precisions):
        types = ops.stack(types)
        parents = types.shape[1]
        shared = problem_of(connections, log_activations, matrices)
        problem = similarity.Problem(*shared, count, weights.shape[0])
        # Padding divides by alpha + beta: one keeps that from being zero.
        padding = padded(ops.ones((5, parents), types.dtype)) - 1.0
        arrays = poses, log_activations, matrices_to_lanes(matrices), padded(types) - padding
        run = kernels_of(problem, similarity.Inputs, similarity.forward_chunk, similarity.backward_chunk)
        mean, logits = run(*arrays, ops.concatenate([weights, precisions], axis=0))
        return from_lanes(mean, logits, connections.child.shape[0], parents)

    return route
