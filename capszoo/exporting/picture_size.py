"""How large an encoded picture is, by stock operators of TensorFlow, before anything of it is decoded."""

import tensorflow as tf

from capszoo.data.images import MAX_PIXELS

# With the head of the chunk that tells the size: decoders take others before it, at whose bytes nobody looks here.
_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_JPEG = b"\xff\xd8\xff"


def within_limit(contents):
    """One encoded picture, unless it is neither PNG nor JPEG or its header tells of more than `MAX_PIXELS` pixels.

    A PNG of 21 KB can claim 13,300 x 13,300 pixels, which take gigabytes once they are decoded.
    Errors when served: `InvalidArgumentError`, naming what was received, before any pixel is decoded.
    """
    is_png = tf.strings.substr(contents, 0, len(_PNG)) == _PNG
    is_jpeg = tf.strings.substr(contents, 0, len(_JPEG)) == _JPEG
    known = tf.debugging.Assert(is_png | is_jpeg, ["a PNG or JPEG picture is expected. Received other bytes"])
    with tf.control_dependencies([known]):
        sides = tf.cond(is_png, lambda: _png_sides(contents), lambda: _jpeg_sides(contents))
    small = tf.reduce_all(sides > 0) & (sides[0] <= MAX_PIXELS) & (tf.reduce_prod(sides) <= MAX_PIXELS)
    expected = f"a picture of 1 to {MAX_PIXELS} pixels is expected. Received (height, width):"
    with tf.control_dependencies([tf.debugging.Assert(small, [expected, sides])]):
        return tf.identity(contents)


def _png_sides(contents):
    """Height and width int64 `[2]`: big-endian, at bytes 16 to 23, width first; zeros where the bytes end before."""
    header = tf.strings.substr(contents, 0, 24)
    numbers = tf.io.decode_raw(header, tf.int32, little_endian=False, fixed_length=24)
    return tf.cast(numbers[5:3:-1], tf.int64)


def _jpeg_sides(contents):
    return tf.cast(tf.io.extract_jpeg_shape(contents)[:2], tf.int64)
