"""Products of lanes with weights that all lanes share, and small networks of ReLU layers made of them.

Where capsules are `[n, width, lanes]` and weights `[width, columns]`, a weight is one number for all lanes: four rows
and four columns at a time stay in registers, so that what is loaded is used four times. All widths are multiples of
four, but for the rows of `outer`.
"""

import collections

import numpy as np
from numba import njit

from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.lanes import (
    LANES,
    broadcast,
    broadcast_at,
    fma,
    load,
    maximum,
    store,
    zero_unless_positive,
)

f32 = np.float32
ZERO = f32(0.0)
LINEAR = f32(-np.inf)

# Rows of lanes, or of numbers, in a flat array: the first begins at `at`, and each `stride` numbers after the last.
Rows = collections.namedtuple("Rows", "array at stride")


@njit(forceinline=True)
def _four(array, at):
    return load(array, at), load(array, at + LANES), load(array, at + 2 * LANES), load(array, at + 3 * LANES)


@njit(forceinline=True)
def _four_broadcast(array, at):
    return (
        broadcast_at(array, at),
        broadcast_at(array, at + 1),
        broadcast_at(array, at + 2),
        broadcast_at(array, at + 3),
    )


@njit(forceinline=True)
def _four_fma(a, b, c):
    return fma(a, b[0], c[0]), fma(a, b[1], c[1]), fma(a, b[2], c[2]), fma(a, b[3], c[3])


@njit(forceinline=True)
def _four_stored(array, at, values, floor):
    store(array, at, maximum(values[0], floor))
    store(array, at + LANES, maximum(values[1], floor))
    store(array, at + 2 * LANES, maximum(values[2], floor))
    store(array, at + 3 * LANES, maximum(values[3], floor))


@inner
def product(x, inputs, weights, columns, start, y, n, floor):
    """y = max(start + x W, floor): n rows of x with `inputs` entries, W `[inputs, columns]`, y may be start."""
    least = broadcast(floor)
    fours = n - n % 4
    for i in range(0, fours, 4):
        x0 = x.at + i * x.stride
        x1, x2, x3 = x0 + x.stride, x0 + 2 * x.stride, x0 + 3 * x.stride
        s, t = start.at + i * start.stride, y.at + i * y.stride
        for c in range(0, columns, 4):
            at = s + c * LANES
            a0, a1 = _four(start.array, at), _four(start.array, at + start.stride)
            a2, a3 = _four(start.array, at + 2 * start.stride), _four(start.array, at + 3 * start.stride)
            w, end = weights.at + c, inputs * LANES
            for d in range(0, end, LANES):
                column = _four_broadcast(weights.array, w)
                a0 = _four_fma(load(x.array, x0 + d), column, a0)
                a1 = _four_fma(load(x.array, x1 + d), column, a1)
                a2 = _four_fma(load(x.array, x2 + d), column, a2)
                a3 = _four_fma(load(x.array, x3 + d), column, a3)
                w += weights.stride
            to = t + c * LANES
            _four_stored(y.array, to, a0, least)
            _four_stored(y.array, to + y.stride, a1, least)
            _four_stored(y.array, to + 2 * y.stride, a2, least)
            _four_stored(y.array, to + 3 * y.stride, a3, least)
    for i in range(fours, n):
        for c in range(0, columns, 4):
            a0 = _four(start.array, start.at + i * start.stride + c * LANES)
            for d in range(inputs):
                column = _four_broadcast(weights.array, weights.at + d * weights.stride + c)
                a0 = _four_fma(load(x.array, x.at + i * x.stride + d * LANES), column, a0)
            _four_stored(y.array, y.at + i * y.stride + c * LANES, a0, least)


@inner
def outer(x, rows, y, columns, sums, n):
    """sums[r, c] += sum_i x[i, r] * y[i, c], lane by lane, for the first `rows` and `columns` of n rows."""
    least = broadcast(LINEAR)
    fours = rows - rows % 4
    for c in range(0, columns * LANES, 4 * LANES):
        for r in range(0, fours, 4):
            at, s = x.at + r * LANES, sums.at + r * sums.stride + c
            a0, a1 = _four(sums.array, s), _four(sums.array, s + sums.stride)
            a2, a3 = _four(sums.array, s + 2 * sums.stride), _four(sums.array, s + 3 * sums.stride)
            to = y.at + c
            for _ in range(n):
                column = _four(y.array, to)
                a0 = _four_fma(load(x.array, at), column, a0)
                a1 = _four_fma(load(x.array, at + LANES), column, a1)
                a2 = _four_fma(load(x.array, at + 2 * LANES), column, a2)
                a3 = _four_fma(load(x.array, at + 3 * LANES), column, a3)
                at += x.stride
                to += y.stride
            _four_stored(sums.array, s, a0, least)
            _four_stored(sums.array, s + sums.stride, a1, least)
            _four_stored(sums.array, s + 2 * sums.stride, a2, least)
            _four_stored(sums.array, s + 3 * sums.stride, a3, least)
        for r in range(fours, rows):
            s = sums.at + r * sums.stride + c
            a0 = _four(sums.array, s)
            for i in range(n):
                column = _four(y.array, y.at + i * y.stride + c)
                a0 = _four_fma(load(x.array, x.at + i * x.stride + r * LANES), column, a0)
            _four_stored(sums.array, s, a0, least)


@inner
def transposed(weights, at, rows, columns):
    """A flat copy `[columns, rows]` of `weights[at:]`, `[rows, columns]`."""
    found = np.empty(rows * columns, f32)
    for row in range(rows):
        for column in range(columns):
            found[column * rows + row] = weights[at + row * columns + column]
    return found


@inner
def weights_of(widths):
    """How many numbers a network of these widths has: of each layer `[below + 1, above]`, the bias as last row."""
    count = 0
    for layer in range(len(widths) - 1):
        count += (widths[layer] + 1) * widths[layer + 1]
    return count


@inner
def biases(widths, weights):
    """All biases of a network, in every lane: `[sum of all widths but the first, lanes]`."""
    found = np.empty(widths[1:].sum() * LANES, f32)
    w, at = 0, 0
    for layer in range(len(widths) - 1):
        w += widths[layer] * widths[layer + 1]
        for column in range(widths[layer + 1]):
            store(found, at, broadcast_at(weights, w + column))
            at += LANES
        w += widths[layer + 1]
    return found


@inner
def network(widths, weights, bias, x, layers, n):
    """The outputs of all layers of a network for n rows of x: in each row of `layers` one after the other."""
    w, at = 0, 0
    for layer in range(len(widths) - 1):
        below, above = widths[layer], widths[layer + 1]
        y = Rows(layers.array, layers.at + at, layers.stride)
        floor = LINEAR if layer == len(widths) - 2 else ZERO
        product(x, below, Rows(weights, w, above), above, Rows(bias, at, 0), y, n, floor)
        x = y
        w += (below + 1) * above
        at += above * LANES


@inner
def backward_weights(widths, weights):
    """The weights of all layers, each transposed, at the places where `network` reads them."""
    found = np.empty_like(weights)
    w = 0
    for layer in range(len(widths) - 1):
        below, above = widths[layer], widths[layer + 1]
        found[w : w + below * above] = transposed(weights, w, below, above)
        w += (below + 1) * above
    return found


@inner
def network_backward(widths, backward, x, layers, slopes, d_x, sums, n):
    """Adds to d_x the gradients of x, and to `sums` those of the weights, in lanes.

    where:
      backward: `backward_weights`.
      layers: the outputs of all layers, of `network`.
      slopes: rows like those; their last layer holds the gradients of the outputs, the others are for use here.
    """
    w, at = weights_of(widths), widths[1:].sum() * LANES
    for layer in range(len(widths) - 2, -1, -1):
        below, above = widths[layer], widths[layer + 1]
        w -= (below + 1) * above
        at -= above * LANES
        y = Rows(slopes.array, slopes.at + at, slopes.stride)
        _add_rows(y, above, sums, (w + below * above) * LANES, n)
        gradient = Rows(sums, w * LANES, above * LANES)
        transposed_weights = Rows(backward, w, below)
        if layer == 0:
            outer(x, below, y, above, gradient, n)
            product(y, above, transposed_weights, below, d_x, d_x, n, LINEAR)
        else:
            x_below = Rows(layers.array, layers.at + at - below * LANES, layers.stride)
            d_x_below = Rows(slopes.array, slopes.at + at - below * LANES, slopes.stride)
            outer(x_below, below, y, above, gradient, n)
            _clear(d_x_below, below, n)
            product(y, above, transposed_weights, below, d_x_below, d_x_below, n, LINEAR)
            _through_relu(x_below, d_x_below, below, n)


@inner
def _add_rows(y, width, sums, at, n):
    for c in range(0, width * LANES, LANES):
        sums_of_column = load(sums, at + c)
        for i in range(n):
            sums_of_column = sums_of_column + load(y.array, y.at + i * y.stride + c)
        store(sums, at + c, sums_of_column)


@inner
def _clear(y, width, n):
    for i in range(n):
        for c in range(0, width * LANES, LANES):
            store(y.array, y.at + i * y.stride + c, broadcast(ZERO))


@inner
def _through_relu(x_below, slope, width, n):
    for i in range(n):
        h, s = x_below.at + i * x_below.stride, slope.at + i * slope.stride
        for c in range(0, width * LANES, LANES):
            value = zero_unless_positive(load(x_below.array, h + c), load(slope.array, s + c))
            store(slope.array, s + c, value)
