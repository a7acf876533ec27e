"""The analytic gradient of `recurrent`; the way back makes anew what the way out has made.

Symbols as in `capszoo.routing.lstm.LSTMRouting` (Faria 2019, section 4.2); d y is the gradient of the loss by y, and
z = [mu_j, a_i, V_ij, c_ij, h_ij] W + b are the inputs of the gates. Equation 14, with f_a as below:

    d (sum_i c_ij s_ij) = d x_j through f_a     d s_ij = c_ij d (...)                   d c_ij = s_ij . d (...)

At each step, from the last to the first, the mean and the softmax over children, Algorithm 1:

    d c_ij += d mu_j . V_ij                     d V_ij += c_ij d mu_j
    d f_c(h_ij) = c_ij (d c_ij - sum_k c_kj d c_kj)

a ReLU layer y = max(x W + b, 0) of f_c or f_a, with d y zero where y is,

    d W += x^T d y                              d b += d y                              d x = d y W^T

and the cell, Algorithm 2: s' = f s + i g, h' = o tanh(s'), with gates i, f, o and the candidate g:

    d o = d h' tanh(s')                         d s' += d h' o (1 - tanh(s')^2)         d s = d s' f
    d i = d s' g                                d f = d s' s                            d g = d s' i
    d z_i = d i i (1 - i)    d z_f = d f f (1 - f)    d z_o = d o o (1 - o)    d z_g = d g (1 - g^2)
    d W += [...]^T d z                          d b += d z                              d [mu, a, V, c, h] = d z W^T

"code" exchanges h and s in f_c and in equation 14. a_i and V_ij are the same in all steps: to them leads the gradient
of the gates summed over the steps. V = M W leads to poses and weights, `votes.product_gradients`.
"""

import collections

import numpy as np

from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.consensus import from_weighted_mean, vote_rows
from capszoo.routing.cpu.entrance import kernel
from capszoo.routing.cpu.lanes import LANES, broadcast, broadcast_at, fma, horizontal_sum, load, store
from capszoo.routing.cpu.networks import (
    LINEAR,
    Rows,
    backward_weights,
    network_backward,
    outer,
    product,
    transposed,
)
from capszoo.routing.cpu.recurrent import (
    ACTIVATION,
    BIAS,
    BLOCK,
    COEFFICIENT,
    HIDDEN,
    ONE,
    VOTE,
    aligned,
    block_rows,
    cell_rows,
    gates_width,
    inputs_of,
    new_path,
    pair_rows,
    states,
    walk,
)
from capszoo.routing.cpu.votes import (
    POSE,
    TILE,
    ZERO,
    chunk_of,
    chunks,
    gradient_shapes,
    make_votes,
    parent_shapes,
    product_gradients,
    room,
    votes_at,
)

f32 = np.float32

# Gradients along the path: mean [count + 1, D]; coefficients [I]; hidden and cell states [I, U]; what mean and bias
# add to gates, [count, 4 U]; all gates of a block, [BLOCK, G], summed over the steps; layers of both networks; the
# sums over the children that activations depend on, [U]; votes of a block, [BLOCK, D].
Sweep = collections.namedtuple(
    "Sweep", "mean coefficients hidden cell parent gates layers final combined votes"
)
# Weights for the way back, [columns, rows]: of the cell, `[4 U, rows]`, and of both networks.
Backward = collections.namedtuple("Backward", "cell compatibility activation")
# Gradients of weights of one chunk, in lanes: of the cell `[rows, 4 U]`, and of both networks.
Sums = collections.namedtuple("Sums", "cell compatibility activation")


@inner
def _new_sweep(problem, path):
    seen, units = problem.child.shape[1], problem.units
    return Sweep(
        aligned((problem.count + 1) * TILE),
        aligned(seen * LANES),
        aligned(seen * units * LANES),
        aligned(seen * units * LANES),
        aligned(problem.count * 4 * units * LANES),
        aligned(BLOCK * gates_width(problem)),
        aligned(BLOCK * len(path.bias1)),
        aligned(len(path.bias2)),
        aligned(units * LANES),
        aligned(BLOCK * TILE),
    )


@inner
def _state_slopes(problem, sweep, begin):
    """Gradients of the states that the networks for coefficients and for activations take."""
    width = problem.units * LANES
    hidden, cell = Rows(sweep.hidden, begin * width, width), Rows(sweep.cell, begin * width, width)
    return (cell, hidden) if problem.swapped else (hidden, cell)


@inner
def _from_logit(problem, path, sweep, backward, sums, gradient):
    """From the gradient of x_j to those of the last coefficients and states."""
    seen, last = problem.child.shape[1], problem.count
    sweep.final[:] = ZERO
    store(sweep.final, len(sweep.final) - 4 * LANES, gradient)
    sweep.combined[:] = ZERO
    combined, d_combined = Rows(path.combined, 0, 0), Rows(sweep.combined, 0, 0)
    final, slopes = Rows(path.final, 0, 0), Rows(sweep.final, 0, 0)
    network_backward(
        problem.activation, backward.activation, combined, final, slopes, d_combined, sums.activation, 1
    )
    pair = pair_rows(problem, path, last, 0)
    _, state = states(problem, path, last, 0)
    _, d_state = _state_slopes(problem, sweep, 0)
    for i in range(seen):
        coefficient, slope = load(pair.array, pair.at + i * pair.stride), broadcast(ZERO)
        for u in range(0, problem.units * LANES, LANES):
            d_combined = load(sweep.combined, u)
            store(d_state.array, i * d_state.stride + u, coefficient * d_combined)
            slope = fma(d_combined, load(state.array, state.at + i * state.stride + u), slope)
        store(sweep.coefficients, i * LANES, slope)


@inner
def _through_softmax(problem, path, sweep, t, begin, n, average):
    """From the coefficients of step t to the logits of a block of children."""
    pair, output_at = pair_rows(problem, path, t, begin), len(path.bias1) - 4 * LANES
    for i in range(n):
        coefficient = load(pair.array, pair.at + i * pair.stride)
        at = i * len(path.bias1) + output_at
        slope = load(sweep.coefficients, (begin + i) * LANES) - average
        store(sweep.layers, at, coefficient * slope)
        for other in range(1, 4):
            store(sweep.layers, at + other * LANES, broadcast(ZERO))
        store(sweep.coefficients, (begin + i) * LANES, broadcast(ZERO))


@inner
def _through_cells(problem, inputs, path, sweep, t, begin, n):
    """From both states of step t to the gates, left in their place, and to the cell states and coefficients before."""
    one, width = broadcast(ONE), problem.units * LANES
    gates, cell_tanh, _ = block_rows(problem, path, t, begin)
    before = cell_rows(problem, path, t - 1, begin)
    for u in range(problem.units):
        g, q, w = 4 * u * LANES, u * LANES, COEFFICIENT * 4 * problem.units + 4 * u
        w0, w1 = broadcast_at(inputs.cell, w), broadcast_at(inputs.cell, w + 1)
        w2, w3 = broadcast_at(inputs.cell, w + 2), broadcast_at(inputs.cell, w + 3)
        s0, s1, s2, s3 = broadcast(ZERO), broadcast(ZERO), broadcast(ZERO), broadcast(ZERO)
        for i in range(n):
            at, own, c = gates.at + i * gates.stride + g, (begin + i) * width + q, (begin + i) * LANES
            input_gate, forget_gate = load(gates.array, at), load(gates.array, at + LANES)
            candidate, output_gate = load(gates.array, at + 2 * LANES), load(gates.array, at + 3 * LANES)
            tanh_of_cell = load(cell_tanh.array, cell_tanh.at + i * cell_tanh.stride + q)
            d_hidden = load(sweep.hidden, own)
            d_tanh = d_hidden * output_gate
            state = fma(d_tanh, one - tanh_of_cell * tanh_of_cell, load(sweep.cell, own))
            store(sweep.cell, own, state * forget_gate)
            d_gated = state * input_gate
            g0 = d_gated * candidate * (one - input_gate)
            g1 = (
                state
                * load(before.array, before.at + i * before.stride + q)
                * forget_gate
                * (one - forget_gate)
            )
            g2 = d_gated * (one - candidate * candidate)
            g3 = d_tanh * tanh_of_cell * (one - output_gate)
            store(gates.array, at, g0)
            store(gates.array, at + LANES, g1)
            store(gates.array, at + 2 * LANES, g2)
            store(gates.array, at + 3 * LANES, g3)
            s0, s1, s2, s3 = s0 + g0, s1 + g1, s2 + g2, s3 + g3
            coefficient = fma(g0, w0, g1 * w1) + fma(g2, w2, g3 * w3)
            store(sweep.coefficients, c, load(sweep.coefficients, c) + coefficient)
            store(sweep.hidden, own, broadcast(ZERO))
        at = ((t - 1) * 4 * problem.units) * LANES + g
        store(sweep.parent, at, load(sweep.parent, at) + s0)
        store(sweep.parent, at + LANES, load(sweep.parent, at + LANES) + s1)
        store(sweep.parent, at + 2 * LANES, load(sweep.parent, at + 2 * LANES) + s2)
        store(sweep.parent, at + 3 * LANES, load(sweep.parent, at + 3 * LANES) + s3)


@inner
def _sums_of(problem, sums, row):
    """Where the sums for the weights of the gates begin that stand in `row`."""
    width = 4 * problem.units * LANES
    return Rows(sums.cell, row * width, width)


@inner
def _backward_of(problem, backward, row):
    """The columns of the transposed weights that lead from `row`, and from those behind it, to the gates."""
    return Rows(backward.cell, row, HIDDEN + problem.units)


@inner
def _back(problem, inputs, votes, v, k, path, sweep, backward, sums, t):
    """From mean, coefficients and states of step t to those of step t - 1."""
    seen, width = problem.child.shape[1], 4 * problem.units
    coefficients = pair_rows(problem, path, t, 0)
    average = from_weighted_mean(problem, votes, v, k, coefficients, sweep.mean, t, sweep.coefficients)
    for begin in range(0, seen, BLOCK):
        n = min(BLOCK, seen - begin)
        gates, _, layers = block_rows(problem, path, t, begin)
        state, _ = states(problem, path, t, begin)
        d_state, _ = _state_slopes(problem, sweep, begin)
        slopes = Rows(sweep.layers, 0, layers.stride)
        _through_softmax(problem, path, sweep, t, begin, n, average)
        network_backward(
            problem.compatibility,
            backward.compatibility,
            state,
            layers,
            slopes,
            d_state,
            sums.compatibility,
            n,
        )
        _through_cells(problem, inputs, path, sweep, t, begin, n)
        pair, known = pair_rows(problem, path, t - 1, begin), 1
        if t > 1:
            stride, known = problem.units * LANES, 1 + problem.units
            hidden = Rows(sweep.hidden, begin * stride, stride)
            weights = _backward_of(problem, backward, HIDDEN)
            product(gates, width, weights, problem.units, hidden, hidden, n, LINEAR)
        outer(pair, known, gates, width, _sums_of(problem, sums, COEFFICIENT), n)
    parent = Rows(sweep.parent, (t - 1) * width * LANES, 0)
    mean = Rows(sweep.mean, (t - 1) * TILE, 0)
    product(parent, width, _backward_of(problem, backward, 0), POSE, mean, mean, 1, LINEAR)


@inner
def _from_parents(problem, path, sweep, sums):
    """To the weights that lead from means to gates, and to the biases, from all steps at once."""
    width = 4 * problem.units
    parent = Rows(sweep.parent, 0, width * LANES)
    outer(Rows(path.mean, 0, TILE), POSE, parent, width, _sums_of(problem, sums, 0), problem.count)
    bias = _sums_of(problem, sums, BIAS)
    for g in range(0, width * LANES, LANES):
        summed = load(bias.array, bias.at + g)
        for t in range(problem.count):
            summed = summed + load(sweep.parent, t * parent.stride + g)
        store(bias.array, bias.at + g, summed)


@inner
def _sum_gates(problem, inputs, gradients, path, sweep, sums, b, p, begin, n):
    """Gradients of the gates of a block summed over the steps; from them those of activations."""
    width, stride = 4 * problem.units, gates_width(problem)
    steps = problem.child.shape[1] * stride
    d_activation_weights = _sums_of(problem, sums, ACTIVATION)
    for i in range(n):
        a, slope = b * problem.children + problem.child[p, begin + i], broadcast(ZERO)
        activation = broadcast_at(inputs.activations, a)
        for g in range(width):
            at = (begin + i) * stride + g * LANES
            summed = load(path.gates, at)
            for t in range(1, problem.count):
                summed = summed + load(path.gates, at + t * steps)
            store(sweep.gates, i * stride + g * LANES, summed)
            slope = fma(summed, broadcast_at(inputs.cell, ACTIVATION * width + g), slope)
            s = d_activation_weights.at + g * LANES
            store(d_activation_weights.array, s, fma(activation, summed, load(d_activation_weights.array, s)))
        gradients.activations[a] += horizontal_sum(slope)


@inner
def _to_inputs(problem, inputs, gradients, votes, v, path, sweep, backward, sums, b, p, k, chunk):
    """From all steps at once to poses, activations and weights."""
    seen, width = problem.child.shape[1], 4 * problem.units
    gates, tiles = Rows(sweep.gates, 0, gates_width(problem)), Rows(sweep.votes, 0, TILE)
    weights = _backward_of(problem, backward, VOTE)
    for begin in range(0, seen, BLOCK):
        n = min(BLOCK, seen - begin)
        _sum_gates(problem, inputs, gradients, path, sweep, sums, b, p, begin, n)
        outer(vote_rows(problem, votes, v, k, begin), POSE, gates, width, _sums_of(problem, sums, VOTE), n)
        for i in range(n):
            for d in range(0, TILE, LANES):
                gradient = broadcast(ZERO)
                for t in range(problem.count + 1):
                    pair = pair_rows(problem, path, t, begin + i)
                    gradient = fma(load(pair.array, pair.at), load(sweep.mean, t * TILE + d), gradient)
                store(sweep.votes, i * TILE + d, gradient)
        product(gates, width, weights, POSE, tiles, tiles, n, LINEAR)
        for i in range(n):
            j, m = problem.child[p, begin + i], problem.matrix[begin + i]
            tile = sweep.votes[i * TILE : (i + 1) * TILE]
            product_gradients(problem, inputs, gradients, b, chunk, j, m, k, tile)


def _shapes(problem):
    inputs = inputs_of(problem)
    return inputs, *parent_shapes(problem), gradient_shapes(problem, inputs)


@kernel(_shapes, chunks)
def backward_chunk(problem, inputs, mean, logits, gradients, chunk):
    """Gradients of a loss whose gradients of what `forward_chunk` makes are `mean` and `logits`, for one chunk."""
    (positions, _), count = problem.child.shape, problem.count
    votes, path = room(problem), new_path(problem, inputs, True)
    sweep = _new_sweep(problem, path)
    backward = Backward(
        transposed(inputs.cell, 0, HIDDEN + problem.units, 4 * problem.units),
        backward_weights(problem.compatibility, inputs.compatibility),
        backward_weights(problem.activation, inputs.activation),
    )
    sums = Sums(_no_sums(inputs.cell), _no_sums(inputs.compatibility), _no_sums(inputs.activation))
    for b in chunk_of(problem, chunk):
        make_votes(problem, inputs, b, votes)
        for p in range(positions):
            v = votes_at(problem, inputs, b, p, votes)
            for k in range(problem.blocks):
                s = (b * positions + p) * problem.blocks + k
                walk(problem, inputs, votes, v, b, p, k, path)
                _clear(sweep)
                sweep.mean[count * TILE :] = mean[s * TILE : (s + 1) * TILE]
                _from_logit(problem, path, sweep, backward, sums, load(logits, s * LANES))
                for t in range(count, 0, -1):
                    _back(problem, inputs, votes, v, k, path, sweep, backward, sums, t)
                _from_parents(problem, path, sweep, sums)
                _to_inputs(problem, inputs, gradients, votes, v, path, sweep, backward, sums, b, p, k, chunk)
    # A softmax does not feel the bias of the output: what has been summed there is rounding.
    sums.compatibility[-4 * LANES :] = ZERO
    _totals(sums.cell, gradients.cell, chunk * len(inputs.cell))
    _totals(sums.compatibility, gradients.compatibility, chunk * len(inputs.compatibility))
    _totals(sums.activation, gradients.activation, chunk * len(inputs.activation))


@inner
def _clear(sweep):
    sweep.mean[:] = ZERO
    sweep.hidden[:] = ZERO
    sweep.cell[:] = ZERO
    sweep.parent[:] = ZERO


@inner
def _no_sums(weights):
    sums = aligned(len(weights) * LANES)
    sums[:] = ZERO
    return sums


@inner
def _totals(sums, gradient, at):
    for w in range(len(sums) // LANES):
        gradient[at + w] = horizontal_sum(load(sums, w * LANES))
