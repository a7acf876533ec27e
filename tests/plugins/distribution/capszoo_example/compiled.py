"""`LengthRouting` of dense capsules, compiled for the CPU.

    v_ij = u_i W_ij,   c_ij = exp |v_ij|^2 / sum_k exp |v_ik|^2,   s_j = sum_i c_ij v_ij

Its gradient, of g_j = dL/ds_j and h_ij = dL/dc_ij:

    q_ij = g_j . v_ij + h_ij
    dL/dv_ij = c_ij g_j + 2 c_ij (q_ij - sum_k c_ik q_ik) v_ij
    dL/du_i = sum_j W_ij dL/dv_ij,   dL/dW_ij = u_i dL/dv_ij^T, summed over images
"""

import collections

import numpy as np
from keras import ops

from capszoo.routing.cpu.entrance import kernel
from capszoo.routing.cpu.operation import operation

Problem = collections.namedtuple("Problem", "images children width parents entries")


def shapes(problem):
    """Shapes of u, W, c, s, g, h, and of the gradients of u and W, those of W for each image."""
    images, children, width, parents, entries = problem
    poses, matrices = (images, children, width), (children, width, parents, entries)
    shares, sums = (images, children, parents), (images, parents, entries)
    return poses, matrices, shares, sums, sums, shares, poses, (images, *matrices)


@kernel(lambda problem: shapes(problem)[:4], lambda problem: problem.images)
def forward_part(problem, u, w, c, s, image):
    _, children, width, parents, entries = problem
    votes = np.zeros((parents, entries), np.float32)
    sums = s.reshape(-1, parents, entries)[image]
    sums[:] = 0
    for i in range(children):
        pose = u.reshape(-1, children, width)[image, i]
        matrix = w.reshape(children, width, parents, entries)[i]
        share = c.reshape(-1, children, parents)[image, i]
        votes[:] = 0
        for d in range(width):
            votes += pose[d] * matrix[d]
        for j in range(parents):
            share[j] = (votes[j] ** 2).sum()
        share -= share.max()
        share[:] = np.exp(share)
        share /= share.sum()
        for j in range(parents):
            sums[j] += share[j] * votes[j]


@kernel(shapes, lambda problem: problem.images)
def backward_part(problem, u, w, c, s, g, h, d_u, d_w, image):
    _, children, width, parents, entries = problem
    votes = np.zeros((parents, entries), np.float32)
    slopes = g.reshape(-1, parents, entries)[image]
    q = np.zeros(parents, np.float32)
    for i in range(children):
        pose = u.reshape(-1, children, width)[image, i]
        matrix = w.reshape(children, width, parents, entries)[i]
        share = c.reshape(-1, children, parents)[image, i]
        votes[:] = 0
        for d in range(width):
            votes += pose[d] * matrix[d]
        for j in range(parents):
            q[j] = (slopes[j] * votes[j]).sum() + h.reshape(-1, children, parents)[image, i, j]
        mean = (share * q).sum()
        for j in range(parents):
            votes[j] = share[j] * (slopes[j] + 2 * (q[j] - mean) * votes[j])
        for d in range(width):
            d_u.reshape(-1, children, width)[image, i, d] = (matrix[d] * votes).sum()
            d_w.reshape(-1, children, width, parents, entries)[image, i, d] = pose[d] * votes


def routed(children, matrices):
    """Sums over children s_j `[B, O, E]` and coefficients `[B, I, O]` of u_i `[B, I, D]` and W_ij `[I, D, O, E]`."""

    def given(u, w):
        return Problem(len(u), *w.shape)

    def made(*shape):
        return np.empty(shape, np.float32)

    def forward(u, w):
        problem = given(u, w)
        c, s = (made(*shape) for shape in shapes(problem)[2:4])
        forward_part(problem, u, w, c, s)
        return s, c

    def backward(d_s, d_c, inputs, _):
        problem = given(*inputs)
        s, c = forward(*inputs)
        d_u, d_w = (made(*shape) for shape in shapes(problem)[6:])
        backward_part(problem, *inputs, c, s, d_s, d_c, d_u, d_w)
        return d_u, d_w.sum(axis=0)

    def returned(images):
        c, s = shapes(Problem(images, *matrices.shape))[2:4]
        return s, c

    sums, coefficients = operation(forward, backward, returned)(children, matrices)
    count, _, parents, entries = matrices.shape
    return ops.reshape(sums, (-1, parents, entries)), ops.reshape(coefficients, (-1, count, parents))
