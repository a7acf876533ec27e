"""Pictures: whatever is no whole picture of a sane size is refused, before it is decoded."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
from attacks.damage import damaged
from PIL import Image

from capszoo.data.images import MAX_PIXELS, read_image

SHAPE = (28, 28, 1)

# By name only: many inputs take minutes.
pytestmark = [pytest.mark.attack, pytest.mark.slow]


def encoded(form, side=28):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (side, side), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def png_of(width, height):
    """A PNG whose header claims a size; its data are a few zeros."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(10**6)))
        + chunk(b"IEND", b"")
    )


def in_range(pixels):
    return pixels.shape == SHAPE and np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 1


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP"])
def test_damaged_pictures(attacks, form, tmp_path):
    path, contents = tmp_path / "picture", encoded(form)
    for what, copy in damaged(contents, attacks.rng, 100):
        path.write_bytes(copy)
        attacks(f"{form} {what}", lambda: read_image(path, SHAPE, resize=True), ValueError, harmless=in_range)


def test_bombs(attacks, tmp_path):
    path = tmp_path / "bomb.png"
    for width, height in [
        (13300, 13300),
        (MAX_PIXELS, 2),
        (2**31 - 1, 2**31 - 1),
        (0, 5),
        (5, 0),
        (2**32 - 1, 1),
    ]:
        path.write_bytes(png_of(width, height))
        attacks(f"{width} x {height}", lambda: read_image(path, SHAPE, resize=True), ValueError)


def test_what_is_no_picture(attacks, tmp_path):
    files = {
        "eps.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n",
        "svg.png": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        "empty.png": b"",
        "text.png": b"a" * 10_000,
        "zip.png": b"PK\x03\x04" + bytes(100),
        "npy.png": b"\x93NUMPY" + bytes(100),
    }
    for name, contents in files.items():
        (tmp_path / name).write_bytes(contents)
        attacks(name, lambda name=name: read_image(tmp_path / name, SHAPE), ValueError)
    os.mkfifo(tmp_path / "pipe.png")
    attacks("a named pipe", lambda: read_image(tmp_path / "pipe.png", SHAPE), ValueError)
    attacks("a folder", lambda: read_image(tmp_path, SHAPE), ValueError)
    attacks("a device", lambda: read_image("/dev/zero", SHAPE), ValueError)
    attacks("nothing", lambda: read_image(tmp_path / "none.png", SHAPE), ValueError, OSError)
