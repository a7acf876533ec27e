"""What both routings of Faria 2019 share: coefficients are a softmax over a parent's children, its pose their mean.

    c_ij = exp(l_ij) / sum_k exp(l_kj)         mu_j = sum_i c_ij V_ij
    d c_ij += d mu_j . V_ij                    d l_ij = c_ij (d c_ij - sum_k c_kj d c_kj)

for one position and one block of sixteen types of parents at a time. d y is the gradient of the loss by y.
"""

from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.lanes import LANES, broadcast, exp, fma, load, store
from capszoo.routing.cpu.networks import Rows, outer
from capszoo.routing.cpu.votes import POSE, TILE, ZERO


@inner
def vote_rows(problem, votes, v, k, begin):
    """Votes for block k of types, from child `begin`."""
    stride = problem.blocks * TILE
    return Rows(votes, v + begin * stride + k * TILE, stride)


@inner
def softmax_over_children(rows, n, largest):
    """The first lanes of each of n rows, from logit to coefficient; `largest` is the largest logit."""
    summed = broadcast(ZERO)
    for i in range(n):
        at = rows.at + i * rows.stride
        term = exp(load(rows.array, at) - largest)
        store(rows.array, at, term)
        summed = summed + term
    for i in range(n):
        at = rows.at + i * rows.stride
        store(rows.array, at, load(rows.array, at) / summed)


@inner
def weighted_mean(problem, votes, v, k, coefficients, means, t):
    """mu_j, into `means` `[steps, D, lanes]` at step t, of coefficients in the first lanes of rows."""
    for d in range(t * TILE, (t + 1) * TILE, LANES):
        store(means, d, broadcast(ZERO))
    found = Rows(means, t * TILE, TILE)
    outer(coefficients, 1, vote_rows(problem, votes, v, k, 0), POSE, found, problem.child.shape[1])


@inner
def from_weighted_mean(problem, votes, v, k, coefficients, d_means, t, d_coefficients):
    """Adds to d c_ij `[I, lanes]` what the mean of step t has; returns sum_k c_kj d c_kj."""
    average, rows = broadcast(ZERO), vote_rows(problem, votes, v, k, 0)
    for i in range(problem.child.shape[1]):
        gradient, more, at = load(d_coefficients, i * LANES), broadcast(ZERO), rows.at + i * rows.stride
        for d in range(0, TILE, 2 * LANES):
            gradient = fma(load(d_means, t * TILE + d), load(votes, at + d), gradient)
            more = fma(load(d_means, t * TILE + d + LANES), load(votes, at + d + LANES), more)
        gradient = gradient + more
        store(d_coefficients, i * LANES, gradient)
        average = fma(load(coefficients.array, coefficients.at + i * coefficients.stride), gradient, average)
    return average
