"""Dynamic routing of dense capsules, compiled, as an operation of TensorFlow."""

import tensorflow as tf

from capszoo.routing.cpu import agreement
from capszoo.routing.cpu.compiling import forget_stale
from capszoo.routing.cpu.lanes import LANES
from capszoo.routing.cpu.operation import operation, padded

forget_stale(agreement.forward_part, agreement.backward_part)


def agreeing(children, matrices, leaky):
    """Rounds of dynamic routing of the votes u_ij = u_i W_ij.

    where:
      children: u_i `[B, I, D]`; matrices: W_ij `[I, D, O, E]`, both float32.
      leaky: whether a child may send a part of itself nowhere.

    Returns `agree(accumulated)`, which takes V_j `[B, O, E]`, the sum of the parents' poses so far, and returns the
    sums over children s_j `[B, O, E]` and coefficients `[B, I, O]`.
    Source: Sabour et al. 2017, Procedure 1; the gradient is its derivative, written out in `agreement`.
    """
    count, width, parents, entries = matrices.shape
    blocks = -(-parents // LANES)
    images = tf.shape(children)[0]
    missing = -images % agreement.FOUR
    # [B, I, D] -> [I, B, D]
    poses = tf.pad(tf.transpose(children, (1, 0, 2)), [(0, 0), (0, missing), (0, 0)])
    # [I, D, O, E] -> [I, K, D, E, lanes]
    matrices = padded(tf.transpose(matrices, (0, 1, 3, 2)))
    matrices = tf.transpose(tf.reshape(matrices, (count, width, entries, blocks, LANES)), (0, 3, 1, 2, 4))

    def agree(accumulated):
        # [B, O, E] -> [B, K, E, lanes]
        accumulated = tf.reshape(padded(tf.transpose(accumulated, (0, 2, 1))), (-1, entries, blocks, LANES))
        accumulated = tf.pad(tf.transpose(accumulated, (0, 2, 1, 3)), [(0, missing), (0, 0), (0, 0), (0, 0)])
        sums, coefficients = _operation(count, width, blocks, entries, parents, leaky)(
            poses, matrices, accumulated
        )
        # [B, K, E, lanes] -> [B, O, E]
        sums = tf.transpose(tf.reshape(sums, (-1, blocks, entries, LANES)), (0, 1, 3, 2))
        sums = tf.reshape(sums, (-1, blocks * LANES, entries))[:, :parents]
        # [I, B, lanes of all blocks] -> [B, I, O]
        coefficients = tf.reshape(coefficients, (count, -1, blocks * LANES))[..., :parents]
        return sums[:images], tf.transpose(coefficients, (1, 0, 2))[:images]

    return agree


def _operation(count, width, blocks, entries, parents, leaky):
    def given(inputs):
        problem = agreement.Problem(count, len(inputs[2]), width, blocks, entries, parents, leaky)
        return problem, agreement.Inputs(*inputs)

    def forward(*arrays):
        sums, coefficients = agreement.forward(*given(arrays))
        return sums.sum(axis=0), coefficients

    def backward(d_sums, d_coefficients, inputs, _):
        return agreement.backward(*given(inputs), d_sums, d_coefficients)

    return operation(forward, backward)
