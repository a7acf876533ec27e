"""Large arrays of real numbers in eight bits each, in files of weights: half the size of float16."""

import numpy as np

BLOCK = 64
LARGEST = 127
# Arrays of fewer numbers would save little.
LARGE = 2**16


def to_eight_bits(array):
    """Whole numbers q and scales s of an array x of finite numbers.

        s_b = max_k |x_bk| / 127
        q_bk = round(x_bk / s_b)

    where:
      x_bk: the k-th of the 64 numbers of block b; blocks follow one another in C's order, and the last may be shorter.
      q: int8, of the shape of x, in [-127, 127]; s: `[blocks]`, float32, at least 0.

    q_bk * s_b is within half of s_b, 0.4 % of the largest of its block, of x_bk.
    """
    blocks = _blocks(np.asarray(array, "float32"))
    scales = np.abs(blocks).max(axis=1) / np.float32(LARGEST)
    # What is nothing but zeros, or too small for a scale, is zero.
    whole = np.rint(blocks / np.where(scales > 0, scales, np.inf)[:, None])
    whole = np.clip(whole, -LARGEST, LARGEST).astype("int8")
    return whole.ravel()[: array.size].reshape(array.shape), scales


def from_eight_bits(whole, scales):
    """The float32 numbers q_bk * s_b, see `to_eight_bits`, of the shape of `whole`."""
    real = _blocks(whole) * scales[:, None]
    return real.ravel()[: whole.size].reshape(whole.shape)


def scales_shape(shape):
    """The shape of the scales of an array of this shape."""
    return (-(-int(np.prod(shape)) // BLOCK),)


def _blocks(array):
    """`[blocks, 64]`, with zeros after the last number."""
    flat = array.ravel()
    return np.pad(flat, (0, -flat.size % BLOCK)).reshape(-1, BLOCK)
