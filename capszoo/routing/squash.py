"""Squashing of vectors, and lengths that can be differentiated everywhere."""

from keras import ops

# Inside the roots: float32 resolves it beside any pose that matters, and the gradient at zero stays finite.
EPSILON = 1e-7


def squash(vectors):
    """Shrinks vectors to lengths below one and keeps their direction.

        v = (||s||^2 / (1 + ||s||^2)) * s / ||s||           # equation 1

    where:
      s: `vectors`, any shape `[..., D]`; the last axis is the pose.
      v: the same shape, lengths in [0, 1).

    Source: Sabour et al. 2017, equation 1.
    Differs from the paper: 1 / ||s|| is rsqrt(||s||^2 + 1e-7), so that value and gradient at s = 0 are zero
    instead of undefined.
    """
    squared = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    return vectors * (squared / (1.0 + squared) * ops.rsqrt(squared + EPSILON))


def exponential_squash(vectors):
    """Shrinks vectors to lengths below one and keeps their direction; short ones keep their length.

        v = (1 - exp(-||s||)) * s / ||s||

    where:
      s: `vectors`, any shape `[..., D]`; the last axis is the pose.
      v: the same shape, lengths in [0, 1).

    Its slope at zero is one, where that of `squash` is zero.
    Source: Mazzia, Salvetti and Chiaberge 2021, "Efficient-CapsNet".
    Differs from the paper: ||s|| is sqrt(||s||^2 + 1e-7), so that the gradient at s = 0 is finite.
    """
    norm = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True) + EPSILON)
    # 1 - exp(-n) = tanh(n / 2) (1 + exp(-n)), as exact for short vectors as expm1, which ONNX does not have.
    return vectors * (ops.tanh(norm / 2.0) * (1.0 + ops.exp(-norm)) / norm)


def length(vectors):
    """Euclidean length of poses: sqrt(sum_d v_d^2 + 1e-7), shape `[...]` for `vectors[..., D]`.

    The length of a squashed pose is the capsule's activation (Sabour et al. 2017, section 2). The constant keeps
    the gradient finite at zero; a zero pose has length 3e-4, and a long one, rounded to float32, up to 1 + 4e-7.
    """
    return ops.sqrt(ops.sum(ops.square(vectors), axis=-1) + EPSILON)
