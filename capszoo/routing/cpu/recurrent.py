"""Connectionist routing from poses to parents, compiled for the CPU; see `votes` for the order of all arrays.

The equations are those of `capszoo.routing.lstm.LSTMRouting`. A parent depends on its own votes only, so that
everything happens for one position and one block of types at a time. Its gradient is in `recurrent_backward`.
"""

import collections

import numpy as np

from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.consensus import softmax_over_children, vote_rows, weighted_mean
from capszoo.routing.cpu.entrance import check_array, check_count, kernel
from capszoo.routing.cpu.lanes import (
    LANES,
    broadcast,
    broadcast_at,
    fma,
    load,
    maximum,
    sigmoid,
    store,
    tanh,
)
from capszoo.routing.cpu.networks import LINEAR, Rows, biases, network, outer, product
from capszoo.routing.cpu.votes import (
    INPUTS,
    POSE,
    PROBLEM,
    TILE,
    ZERO,
    check_problem,
    chunk_of,
    chunks,
    input_shapes,
    make_votes,
    parent_shapes,
    room,
    votes_at,
)

f32 = np.float32
ONE = f32(1.0)
# Children whose gates are made and used together.
BLOCK = 16

# See `votes.PROBLEM`; count: updates of the coefficients; units: of the cell (U), a multiple of four; swapped: whether
# the cell's state makes coefficients and the hidden one activations; compatibility, activation: widths of both
# networks, from U to the four of which the first is the output.
Problem = collections.namedtuple("Problem", f"{PROBLEM} count units swapped compatibility activation")
# See `votes.INPUTS`; cell: rows of 4 U numbers, the gates of
# each unit side by side, for mean [D], bias, activation, vote [D], coefficient and hidden states [U]; compatibility,
# activation: for each layer `[below + 1, above]`.
Inputs = collections.namedtuple("Inputs", f"{INPUTS} cell compatibility activation")
# Where those rows of the cell are.
BIAS, ACTIVATION, VOTE, COEFFICIENT, HIDDEN = POSE, POSE + 1, POSE + 2, 2 * POSE + 2, 2 * POSE + 3

# For one position and block:
#   base [I, G]: what activation and vote add to the gates, the same in all steps;
#   parent [G]: what mean and bias add, in the step at hand;
#   mean [count + 1, D]; pair [count + 1, I, 1 + U]: coefficients and hidden states; cell [count + 1, I, U];
#   gates [count, I, G], after sigmoid or tanh; cell_tanh [count, I, U]: tanh of the cell;
#   layers [count, I, ...]: what the layers of the network for coefficients give;
#   combined [U]; final [...]: what the layers of the network for activations give.
# Unless `kept`, one step of pair and cell and one block of gates, cell_tanh and layers are there, used again and again.
# Rows of gates are one longer than 4 U (G): with powers of two all would fall on the same lines of the cache.
Path = collections.namedtuple(
    "Path", "kept base parent mean pair cell gates cell_tanh layers combined final bias1 bias2"
)


@inner
def aligned(size):
    """Room for `size` numbers that begins where a line of the cache does."""
    room = np.empty(size + LANES, f32)
    first = -(room.ctypes.data // 4) % LANES
    return room[first : first + size]


@inner
def gates_width(problem):
    """Of one row of gates."""
    return (4 * problem.units + 1) * LANES


@inner
def new_path(problem, inputs, kept):
    """A `Path`, empty."""
    seen, units = problem.child.shape[1], problem.units
    steps = problem.count if kept else 1
    states = steps + 1 if kept else 1
    pairs = steps * seen if kept else BLOCK
    bias1 = biases(problem.compatibility, inputs.compatibility)
    bias2 = biases(problem.activation, inputs.activation)
    return Path(
        kept,
        aligned(seen * gates_width(problem)),
        aligned(4 * units * LANES),
        aligned((problem.count + 1) * TILE),
        aligned(states * seen * (1 + units) * LANES),
        aligned(states * seen * units * LANES),
        aligned(pairs * gates_width(problem)),
        aligned(pairs * units * LANES),
        aligned(pairs * len(bias1)),
        aligned(units * LANES),
        aligned(len(bias2)),
        bias1,
        bias2,
    )


@inner
def pair_rows(problem, path, t, begin):
    """Coefficient and hidden states after t updates, from child `begin`."""
    width = (1 + problem.units) * LANES
    first = (t * problem.child.shape[1] if path.kept else 0) + begin
    return Rows(path.pair, first * width, width)


@inner
def cell_rows(problem, path, t, begin):
    """Cell states after t updates, from child `begin`."""
    width = problem.units * LANES
    first = (t * problem.child.shape[1] if path.kept else 0) + begin
    return Rows(path.cell, first * width, width)


@inner
def block_rows(problem, path, t, begin):
    """Gates, tanh of the cell and layers of update t, from 1, of the block from child `begin`."""
    first = (t - 1) * problem.child.shape[1] + begin if path.kept else 0
    gates, units, layers = gates_width(problem), problem.units * LANES, len(path.bias1)
    return (
        Rows(path.gates, first * gates, gates),
        Rows(path.cell_tanh, first * units, units),
        Rows(path.layers, first * layers, layers),
    )


@inner
def cell_weights(problem, inputs, row):
    """The weights of the gates from `row` on."""
    width = 4 * problem.units
    return Rows(inputs.cell, row * width, width)


@inner
def _hidden_of(rows):
    """Rows of `pair` without the coefficient."""
    return Rows(rows.array, rows.at + LANES, rows.stride)


@inner
def states(problem, path, t, begin):
    """The states after t updates that the networks for coefficients and for activations take."""
    hidden, cell = _hidden_of(pair_rows(problem, path, t, begin)), cell_rows(problem, path, t, begin)
    return (cell, hidden) if problem.swapped else (hidden, cell)


@inner
def _begin(problem, inputs, votes, v, b, p, k, path):
    """Uniform coefficients, empty states, and what does not change from step to step."""
    seen, width = problem.child.shape[1], 4 * problem.units
    pair, cell = pair_rows(problem, path, 0, 0), cell_rows(problem, path, 0, 0)
    path.pair[: seen * pair.stride] = ZERO
    path.cell[: seen * cell.stride] = ZERO
    base = Rows(path.base, 0, gates_width(problem))
    for i in range(seen):
        store(pair.array, i * pair.stride, broadcast(ONE / f32(seen)))
        activation = broadcast_at(inputs.activations, b * problem.children + problem.child[p, i])
        for g in range(width):
            own = activation * broadcast_at(inputs.cell, ACTIVATION * width + g)
            store(base.array, i * base.stride + g * LANES, own)
    product(
        vote_rows(problem, votes, v, k, 0),
        POSE,
        cell_weights(problem, inputs, VOTE),
        width,
        base,
        base,
        seen,
        LINEAR,
    )
    weighted_mean(problem, votes, v, k, pair, path.mean, 0)


@inner
def _cells(problem, path, gates, before, cell_tanh, hidden, cell, n):
    """New states of n children, whose gates lack what their parent adds; keeps them after sigmoid and tanh."""
    for i in range(n):
        for u in range(problem.units):
            g, q = 4 * u * LANES, u * LANES
            at = gates.at + i * gates.stride + g
            input_gate = sigmoid(load(gates.array, at) + load(path.parent, g))
            forget_gate = sigmoid(load(gates.array, at + LANES) + load(path.parent, g + LANES))
            candidate = tanh(load(gates.array, at + 2 * LANES) + load(path.parent, g + 2 * LANES))
            output_gate = sigmoid(load(gates.array, at + 3 * LANES) + load(path.parent, g + 3 * LANES))
            state = forget_gate * load(before.array, before.at + i * before.stride + q)
            state = fma(input_gate, candidate, state)
            tanh_of_cell = tanh(state)
            if path.kept:
                store(gates.array, at, input_gate)
                store(gates.array, at + LANES, forget_gate)
                store(gates.array, at + 2 * LANES, candidate)
                store(gates.array, at + 3 * LANES, output_gate)
                store(cell_tanh.array, cell_tanh.at + i * cell_tanh.stride + q, tanh_of_cell)
            store(cell.array, cell.at + i * cell.stride + q, state)
            store(hidden.array, hidden.at + i * hidden.stride + q, output_gate * tanh_of_cell)


@inner
def _update(problem, inputs, votes, v, k, path, t):
    """States, coefficients and mean of update t, from 1."""
    seen, width = problem.child.shape[1], 4 * problem.units
    for g in range(width):
        store(path.parent, g * LANES, broadcast_at(inputs.cell, BIAS * width + g))
    parent, mean = Rows(path.parent, 0, 0), Rows(path.mean, (t - 1) * TILE, TILE)
    product(mean, POSE, cell_weights(problem, inputs, 0), width, parent, parent, 1, LINEAR)
    of_pair = cell_weights(problem, inputs, COEFFICIENT)
    # At first hidden states are zero: of a pair only the coefficient matters.
    known = 1 if t == 1 else 1 + problem.units
    output_at = len(path.bias1) - 4 * LANES
    largest = broadcast(f32(-1e30))
    for begin in range(0, seen, BLOCK):
        n = min(BLOCK, seen - begin)
        gates, cell_tanh, layers = block_rows(problem, path, t, begin)
        base = Rows(path.base, begin * gates.stride, gates.stride)
        pair, after = pair_rows(problem, path, t - 1, begin), pair_rows(problem, path, t, begin)
        product(pair, known, of_pair, width, base, gates, n, LINEAR)
        before, cell = cell_rows(problem, path, t - 1, begin), cell_rows(problem, path, t, begin)
        _cells(problem, path, gates, before, cell_tanh, _hidden_of(after), cell, n)
        state, _ = states(problem, path, t, begin)
        network(problem.compatibility, inputs.compatibility, path.bias1, state, layers, n)
        for i in range(n):
            logit = load(layers.array, layers.at + i * layers.stride + output_at)
            store(after.array, after.at + i * after.stride, logit)
            largest = maximum(largest, logit)
    after = pair_rows(problem, path, t, 0)
    softmax_over_children(after, seen, largest)
    weighted_mean(problem, votes, v, k, after, path.mean, t)


@inner
def walk(problem, inputs, votes, v, b, p, k, path):
    """All updates; returns x_j, the logit of equation 14."""
    seen, count = problem.child.shape[1], problem.count
    _begin(problem, inputs, votes, v, b, p, k, path)
    for t in range(1, count + 1):
        _update(problem, inputs, votes, v, k, path, t)
    path.combined[:] = ZERO
    combined, final = Rows(path.combined, 0, 0), Rows(path.final, 0, 0)
    _, state = states(problem, path, count, 0)
    outer(pair_rows(problem, path, count, 0), 1, state, problem.units, combined, seen)
    network(problem.activation, inputs.activation, path.bias2, combined, final, 1)
    return load(path.final, len(path.final) - 4 * LANES)


def inputs_of(problem):
    """Shapes of the inputs of a problem that is as it should be."""
    check_problem(problem)
    check_count("count", problem.count, 1)
    check_count("units", problem.units, 4)
    networks = []
    for name in ("compatibility", "activation"):
        widths = getattr(problem, name)
        check_array(name, widths, np.int64, np.shape(widths)[:1] or (None,))
        if len(widths) < 2 or widths[0] != problem.units or np.any(widths % 4) or np.any(widths < 4):
            expected = f"{name} must be multiples of four from {problem.units} units on"
            raise ValueError(f"{expected}. Received: {widths.tolist()}")
        networks.append((int(np.sum((widths[:-1] + 1) * widths[1:])),))
    return Inputs(*input_shapes(problem), (HIDDEN + problem.units, 4 * problem.units), *networks)


def _forward(problem):
    return inputs_of(problem), *parent_shapes(problem)


@kernel(_forward, chunks)
def forward_chunk(problem, inputs, mean, logits, chunk):
    """Means `[B, P, K, D, lanes]` and logits `[B, P, K, lanes]` of the parents, for the images of one chunk."""
    votes, path = room(problem), new_path(problem, inputs, False)
    last = problem.count * TILE
    for b in chunk_of(problem, chunk):
        make_votes(problem, inputs, b, votes)
        for p in range(problem.child.shape[0]):
            v = votes_at(problem, inputs, b, p, votes)
            for k in range(problem.blocks):
                s = (b * problem.child.shape[0] + p) * problem.blocks + k
                store(logits, s * LANES, walk(problem, inputs, votes, v, b, p, k, path))
                mean[s * TILE : (s + 1) * TILE] = path.mean[last : last + TILE]
