import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf

from capszoo.data.images import MAX_PIXELS
from capszoo.exporting.picture_size import within_limit

# Of a PNG, up to what its header says.
HEAD = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR"


def encoded(height, width, kind):
    pixels = tf.zeros((height, width, 1), tf.uint8)
    return {"png": tf.io.encode_png, "jpeg": tf.io.encode_jpeg}[kind](pixels).numpy()


def claiming(height, width):
    """The beginning of a PNG whose header claims a size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return HEAD + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))


@pytest.fixture(scope="module")
def traced():
    return tf.function(within_limit, input_signature=[tf.TensorSpec((), tf.string)])


@pytest.mark.parametrize("kind", ["png", "jpeg"])
@pytest.mark.parametrize("sides", [(1, 1), (28, 40), (4096, 4096)])
def test_a_picture_within_the_limit_passes_as_it_is(traced, kind, sides):
    contents = encoded(*sides, kind)
    assert traced(tf.constant(contents)).numpy() == contents


@pytest.mark.parametrize(
    "sides",
    [(13_300, 13_300), (1, MAX_PIXELS + 1), (2**31 - 1, 2**31 - 1), (2**31, 1), (0, 5), (2**32 - 1,) * 2],
)
def test_a_header_of_more_pixels_than_the_limit_or_none_is_refused(traced, sides):
    with pytest.raises(tf.errors.InvalidArgumentError, match="a picture of 1 to 16777216 pixels is expected"):
        traced(tf.constant(claiming(*sides)))


def test_a_size_behind_another_chunk_is_not_taken_for_one(traced):
    """The decoder passes over chunks that it does not know, also before the one with the size."""
    head, rest = encoded(300, 300, "png")[:8], encoded(300, 300, "png")[8:]
    chunk = b"abCd" + struct.pack(">II", 4, 4)
    unknown = struct.pack(">I", 8) + chunk + struct.pack(">I", zlib.crc32(chunk))
    assert tf.io.decode_png(head + unknown + rest).shape == (300, 300, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="PNG or JPEG"):
        traced(tf.constant(head + unknown + rest))


def test_a_large_jpeg_is_refused(traced):
    with pytest.raises(tf.errors.InvalidArgumentError, match="4100 4100"):
        traced(tf.constant(encoded(4100, 4100, "jpeg")))


@pytest.mark.parametrize(
    "contents", [b"", b"GIF89a\xff\xff\xff\xff", b"BM123456", b"%!PS-Adobe", b"\x89PNG\r\n"]
)
def test_other_bytes_than_png_and_jpeg_are_refused(traced, contents):
    with pytest.raises(tf.errors.InvalidArgumentError, match="PNG or JPEG"):
        traced(tf.constant(contents))


@pytest.mark.parametrize("contents", [HEAD, claiming(5, 5)[:20], b"\xff\xd8\xff\xe0"])
def test_a_picture_that_ends_in_its_header_is_refused(traced, contents):
    with pytest.raises(tf.errors.InvalidArgumentError):
        traced(tf.constant(contents))


def test_random_bytes_after_the_magic_never_pass_as_large(traced):
    random = np.random.default_rng(0)
    for _ in range(200):
        contents = HEAD + random.bytes(40)
        width, height = struct.unpack(">II", contents[16:24])
        if not 0 < width * height <= MAX_PIXELS:
            with pytest.raises(tf.errors.InvalidArgumentError, match="pixels is expected"):
                traced(tf.constant(contents))
