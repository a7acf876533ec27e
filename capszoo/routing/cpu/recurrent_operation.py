"""Connectionist routing of capsules with poses, compiled, as an operation of the backend."""

import numpy as np
from keras import ops

from capszoo.routing.cpu import recurrent, recurrent_backward
from capszoo.routing.cpu.compiling import forget_stale
from capszoo.routing.cpu.operation import from_lanes, kernels_of, matrices_to_lanes
from capszoo.routing.cpu.votes import POSE, problem_of

forget_stale(recurrent.forward_chunk, recurrent_backward.backward_chunk)


def fused_lstm(connections, count, swapped):
    """Connectionist routing of votes V = M W + addition.

    where:
      connections: a `Connections`.
      count: updates of the coefficients.
      swapped: whether the cell's state makes coefficients and the hidden one activations.

    Returns `route(poses, activations, matrices, cell, compatibility, activation)`, which takes poses `[B, C, 16]`, a_i
    `[B, C]`, transformations `[matrices, width, O, width]` and the weights of a `LSTMRouting`: (kernel,
    recurrent_kernel, bias), whose rows for a pose list a matrix column by column, and of both networks; it returns
    mu_j `[B, P, O, 16]` and a_j `[B, P, O]`.
    Source: Faria 2019, section 4.2; the gradient is the derivative, written out in `recurrent_backward`.
    """

    def route(poses, activations, matrices, cell, compatibility, activation):
        problem = recurrent.Problem(
            *problem_of(connections, activations, matrices),
            count,
            _in_fours(cell[1].shape[0]),
            swapped,
            _widths(compatibility),
            _widths(activation),
        )
        weights = _cell(*cell, problem.width), _network(compatibility), _network(activation)
        run = kernels_of(
            problem, recurrent.Inputs, recurrent.forward_chunk, recurrent_backward.backward_chunk
        )
        mean, logits = run(poses, activations, matrices_to_lanes(matrices), *weights)
        return from_lanes(mean, logits, problem.child.shape[0], problem.types)

    return route


def _in_fours(width):
    return width + -width % 4


def _padded(values, *axes):
    """Zeros behind the ends of these axes, up to multiples of four."""
    paddings = [(0, -size % 4 if axis in axes else 0) for axis, size in enumerate(values.shape)]
    return ops.pad(values, paddings)


def _widths(network):
    """Of all layers, from the states to the output."""
    kernels = network[::2]
    widths = [kernels[0].shape[0], *(kernel.shape[1] for kernel in kernels)]
    return np.array([_in_fours(width) for width in widths])


def _network(network):
    """Weights kernel, bias, kernel, bias, ... -> flat, of each layer `[below + 1, above]`."""
    layers = zip(network[::2], network[1::2], strict=True)
    parts = [part for kernel, bias in layers for part in (_padded(kernel, 0, 1), _padded(bias, 0))]
    return ops.concatenate([ops.reshape(part, [-1]) for part in parts], axis=0)


def _cell(kernel, recurrent_kernel, bias, width):
    """Weights of the cell in the order of `recurrent.Inputs`, for poses of this width."""
    units = recurrent_kernel.shape[0]

    def gates_of_units(rows):
        """`[rows, 4 U]` -> `[rows, 4 U]`, the gates of each unit side by side."""
        rows = ops.transpose(ops.reshape(rows, (-1, 4, units)), (0, 2, 1))
        return ops.reshape(_padded(rows, 1), (-1, 4 * _in_fours(units)))

    def by_rows(pose):
        """Rows for a pose listed column by column -> row by row."""
        pose = ops.reshape(pose, (width, POSE // width, 4 * units))
        return ops.reshape(ops.transpose(pose, (1, 0, 2)), (POSE, 4 * units))

    mean, activation, vote, coefficient = ops.split(kernel, [POSE, POSE + 1, 2 * POSE + 1])
    rows = [by_rows(mean), bias[None], activation, by_rows(vote), coefficient, _padded(recurrent_kernel, 0)]
    return gates_of_units(ops.concatenate(rows, axis=0))
