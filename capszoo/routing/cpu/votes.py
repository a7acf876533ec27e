"""Votes between capsules with poses, made where they are used: what every fused routing shares.

A vote is V = M W + addition. A pose has 16 entries in rows of `width`: it is a 4x4 matrix or, with one row, a vector.
Arrays are flat, float32, and their axes are, from the slowest,

    B images, T iterations, P positions of parents, I children seen from one position, C children of an image,
    K blocks of 16 types of parents (the lanes; the last block may have padding), D = 16 entries of a pose,
    Q = width * width entries of a transformation, listed row by row as the pose is.
"""

import numpy as np
from numba import njit

from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.entrance import check_array, check_count, check_range
from capszoo.routing.cpu.lanes import LANES, broadcast, broadcast_at, fma, horizontal_sum, load, store

POSE = 16
# The widths of a matrix and of a vector.
MATRIX, VECTOR = 4, POSE
TILE = POSE * LANES
# Votes of one image, in numbers, up to which reading them again is faster than making them again: 4 MiB.
CACHED = 2**20
ZERO = np.float32(0.0)

# Images that a thread takes at once. Gradients of weights are summed by chunks, so that they do not depend on the
# number of threads.
CHUNK = 4
# What the problem of every routing begins with: child [P, I], number of a child in its image; matrix [I], number of
# its transformation; addition [I * D]; images: B; children: C; matrices: transformations (M); width: of poses; blocks:
# K; types: of parents (O), without padding; kept: whether the votes of a whole image are made once and kept, or for
# every pass.
PROBLEM = "child matrix addition images children matrices width blocks types kept"
# What the inputs of every routing begin with: poses [B, C, D], activations [B, C], weights [M, K, Q, lanes].
INPUTS = "poses activations weights"


def problem_of(connections, activations, matrices):
    """Values of `PROBLEM`, of a `Connections` and of tensors `[B, C]` and `[M, width, O, width]`."""
    child, matrix, addition, _ = connections
    (_, children), (count, width, types, _) = activations.shape, matrices.shape
    blocks = -(-types // LANES)
    kept = child.size * blocks * TILE <= CACHED
    return child, matrix, addition, 0, children, count, width, blocks, types, kept


def check_problem(problem):
    """Errors: `TypeError` and `ValueError` where the fields of `PROBLEM` contradict each other."""
    check_count("images", problem.images)
    for name in ("children", "matrices", "blocks", "types"):
        check_count(name, getattr(problem, name), 1)
    check_count("width", problem.width, 1)
    if problem.width not in (MATRIX, VECTOR):
        raise ValueError(f"width must be {MATRIX} or {VECTOR}. Received: {problem.width!r}")
    if problem.blocks != -(-problem.types // LANES):
        raise ValueError(f"blocks must have room for {problem.types} types. Received: {problem.blocks}")
    shape = np.shape(problem.child)
    check_array("child", problem.child, np.int64, shape if len(shape) == 2 else (None, None))
    check_array("matrix", problem.matrix, np.int64, shape[1:])
    check_array("addition", problem.addition, np.float32, (shape[1] * POSE,))
    check_range("child", problem.child, problem.children)
    check_range("matrix", problem.matrix, problem.matrices)


def input_shapes(problem):
    """Shapes of `INPUTS`."""
    images, children = problem.images, problem.children
    weights = problem.matrices, problem.blocks, problem.width**2, LANES
    return (images, children, POSE), (images, children), weights


def parent_shapes(problem):
    """Shapes of the means and of the logits of all parents: `[B, P, K, D, lanes]` and `[B, P, K, lanes]`."""
    parents = problem.images, problem.child.shape[0], problem.blocks
    return (*parents, POSE, LANES), (*parents, LANES)


def gradient_shapes(problem, inputs):
    """Shapes of gradients of `inputs`: those of weights are by chunk."""
    poses, activations, *weights = inputs
    return type(inputs)(poses, activations, *((chunks(problem), *shape) for shape in weights))


def chunks(problem):
    """How many chunks of images there are."""
    return -(-problem.images // CHUNK)


@inner
def chunk_of(problem, chunk):
    """The images of a chunk."""
    return range(chunk * CHUNK, min(problem.images, (chunk + 1) * CHUNK))


@inner
def room(problem):
    """A place for votes `[P, I, K, D, lanes]` if they are kept, else for those of one position."""
    positions = problem.child.shape[0] if problem.kept else 1
    return np.empty(positions * problem.child.shape[1] * problem.blocks * TILE, np.float32)


@inner
def make_votes(problem, inputs, b, votes):
    """Makes the votes of image b, if they are kept."""
    if problem.kept:
        _make(problem, inputs, b, 0, problem.child.shape[0], votes)


@inner
def votes_at(problem, inputs, b, p, votes):
    """Where the votes for position p begin in `votes`; makes them, if they are not kept."""
    if problem.kept:
        return p * problem.child.shape[1] * problem.blocks * TILE
    _make(problem, inputs, b, p, p + 1, votes)
    return 0


@inner
def _make(problem, inputs, b, begin, end, votes):
    """Makes the votes for the positions from `begin` to before `end`."""
    if problem.width == VECTOR:
        _make_of_vectors(problem, inputs, b, begin, end, votes)
        return
    v = 0
    for p in range(begin, end):
        _make_of_matrices(problem, inputs, b, p, votes, v)
        v += problem.child.shape[1] * problem.blocks * TILE


@inner
def _make_of_vectors(problem, inputs, b, begin, end, votes):
    poses, weights, addition, blocks = inputs.poses, inputs.weights, problem.addition, problem.blocks
    seen = problem.child.shape[1]
    for i in range(seen):
        for k in range(blocks):
            # All positions of a child one after the other, since its transformations fill a core's cache.
            w = (problem.matrix[i] * blocks + k) * POSE * TILE
            for p in range(begin, end):
                m = (b * problem.children + problem.child[p, i]) * POSE
                v = (((p - begin) * seen + i) * blocks + k) * TILE
                for c in range(0, POSE, 4):
                    a, at = i * POSE + c, w + c * LANES
                    v0, v1 = broadcast_at(addition, a), broadcast_at(addition, a + 1)
                    v2, v3 = broadcast_at(addition, a + 2), broadcast_at(addition, a + 3)
                    for q in range(POSE):
                        entry, row = broadcast_at(poses, m + q), at + q * TILE
                        v0 = fma(entry, load(weights, row), v0)
                        v1 = fma(entry, load(weights, row + LANES), v1)
                        v2 = fma(entry, load(weights, row + 2 * LANES), v2)
                        v3 = fma(entry, load(weights, row + 3 * LANES), v3)
                    store(votes, v + c * LANES, v0)
                    store(votes, v + (c + 1) * LANES, v1)
                    store(votes, v + (c + 2) * LANES, v2)
                    store(votes, v + (c + 3) * LANES, v3)


@inner
def _make_of_matrices(problem, inputs, b, p, votes, v):
    poses, weights, addition, blocks = inputs.poses, inputs.weights, problem.addition, problem.blocks
    for i in range(problem.child.shape[1]):
        m, a = (b * problem.children + problem.child[p, i]) * POSE, i * POSE
        for k in range(blocks):
            w = (problem.matrix[i] * blocks + k) * TILE
            for r in range(0, POSE, 4):
                m0, m1 = broadcast_at(poses, m + r), broadcast_at(poses, m + r + 1)
                m2, m3 = broadcast_at(poses, m + r + 2), broadcast_at(poses, m + r + 3)
                for c in range(4):
                    entry = fma(m0, load(weights, w + c * LANES), broadcast_at(addition, a + r + c))
                    entry = fma(m1, load(weights, w + (4 + c) * LANES), entry)
                    entry = fma(m2, load(weights, w + (8 + c) * LANES), entry)
                    entry = fma(m3, load(weights, w + (12 + c) * LANES), entry)
                    store(votes, v + (r + c) * LANES, entry)
            v += TILE


@njit(inline="always")
def _add_moments(votes, v, centre, coefficient, first, second):
    deviation = load(votes, v) - centre
    weighted = coefficient * deviation
    return first + weighted, fma(weighted, deviation, second)


@inner
def moments(problem, votes, v, p, k, coefficients, centre, s, first, second):
    """Sums over the children of position p: coefficient * (v - centre), and coefficient * (v - centre)^2."""
    seen, blocks = problem.child.shape[1], problem.blocks
    zero = broadcast(ZERO)
    for d in range(0, TILE, 4 * LANES):
        c0, c1 = load(centre, s + d), load(centre, s + d + LANES)
        c2, c3 = load(centre, s + d + 2 * LANES), load(centre, s + d + 3 * LANES)
        f0, f1, f2, f3, g0, g1, g2, g3 = zero, zero, zero, zero, zero, zero, zero, zero
        for i in range(seen):
            at, h = v + (i * blocks + k) * TILE + d, load(coefficients, ((p * seen + i) * blocks + k) * LANES)
            f0, g0 = _add_moments(votes, at, c0, h, f0, g0)
            f1, g1 = _add_moments(votes, at + LANES, c1, h, f1, g1)
            f2, g2 = _add_moments(votes, at + 2 * LANES, c2, h, f2, g2)
            f3, g3 = _add_moments(votes, at + 3 * LANES, c3, h, f3, g3)
        store(first, d, f0)
        store(first, d + LANES, f1)
        store(first, d + 2 * LANES, f2)
        store(first, d + 3 * LANES, f3)
        store(second, d, g0)
        store(second, d + LANES, g1)
        store(second, d + 2 * LANES, g2)
        store(second, d + 3 * LANES, g3)


@inner
def product_gradients(problem, inputs, gradients, b, chunk, j, matrix, k, tile):
    """V = M W: dM = dV W^T and dW = M^T dV for one pair, whose dV is `tile`."""
    m, w = (b * problem.children + j) * POSE, (matrix * problem.blocks + k) * problem.width**2 * LANES
    g = chunk * inputs.weights.shape[0] + w
    if problem.width == VECTOR:
        _gradients_of_vectors(inputs, gradients, m, w, g, tile)
    else:
        _gradients_of_matrices(inputs, gradients, m, w, g, tile)


@inner
def _gradients_of_vectors(inputs, gradients, m, w, g, tile):
    for q in range(POSE):
        entry, product, row = broadcast_at(inputs.poses, m + q), broadcast(ZERO), q * TILE
        for d in range(0, TILE, LANES):
            gradient = load(tile, d)
            product = fma(gradient, load(inputs.weights, w + row + d), product)
            store(
                gradients.weights,
                g + row + d,
                fma(entry, gradient, load(gradients.weights, g + row + d)),
            )
        gradients.poses[m + q] += horizontal_sum(product)


@inner
def _gradients_of_matrices(inputs, gradients, m, w, g, tile):
    for r in range(4):
        v0, v1 = load(tile, 4 * r * LANES), load(tile, (4 * r + 1) * LANES)
        v2, v3 = load(tile, (4 * r + 2) * LANES), load(tile, (4 * r + 3) * LANES)
        for q in range(4):
            row = w + 4 * q * LANES
            product = v0 * load(inputs.weights, row)
            product = fma(v1, load(inputs.weights, row + LANES), product)
            product = fma(v2, load(inputs.weights, row + 2 * LANES), product)
            product = fma(v3, load(inputs.weights, row + 3 * LANES), product)
            gradients.poses[m + 4 * r + q] += horizontal_sum(product)
    for q in range(4):
        m0, m1 = broadcast_at(inputs.poses, m + q), broadcast_at(inputs.poses, m + 4 + q)
        m2, m3 = broadcast_at(inputs.poses, m + 8 + q), broadcast_at(inputs.poses, m + 12 + q)
        for c in range(4):
            d = (4 * q + c) * LANES
            gradient = fma(m0, load(tile, c * LANES), load(gradients.weights, g + d))
            gradient = fma(m1, load(tile, (4 + c) * LANES), gradient)
            gradient = fma(m2, load(tile, (8 + c) * LANES), gradient)
            gradient = fma(m3, load(tile, (12 + c) * LANES), gradient)
            store(gradients.weights, g + d, gradient)
