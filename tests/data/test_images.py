import io
import os
import struct
import zlib

import keras
import numpy as np
import pytest
from PIL import Image

from capszoo.data.images import read_image, read_pictures

GREY = np.arange(12, dtype="uint8").reshape(3, 4) * 20  # 3 high, 4 wide
COLOUR = np.stack([GREY, GREY[::-1], 255 - GREY], axis=-1)


@pytest.fixture
def save(tmp_path):
    def save(array, name="picture.png", **options):
        Image.fromarray(array).save(tmp_path / name, **options)
        return tmp_path / name

    return save


@pytest.mark.parametrize("name", ["picture.png", "picture.bmp", "picture.tiff"])
def test_a_grey_picture_becomes_its_pixels_over_255(save, name):
    image = read_image(save(GREY, name), (3, 4, 1))
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image, GREY[..., None] / np.float32(255))


def test_tensors_are_taken_as_arrays():
    images = np.stack([GREY, 255 - GREY])[..., None]
    expected, _ = read_pictures(images, (3, 4, 1))
    for tensors, single in (
        (keras.ops.convert_to_tensor(images), False),
        ([keras.ops.convert_to_tensor(image) for image in images], False),
    ):
        read = read_pictures(tensors, (3, 4, 1))
        np.testing.assert_array_equal(read[0], expected)
        assert read[1] == single
    assert read_pictures(keras.ops.convert_to_tensor(images[0]), (3, 4, 1))[1]


@pytest.mark.parametrize("shape", [(3, 4, 1), (3, 4, 3)])
@pytest.mark.parametrize("levels", [GREY, GREY[..., None], COLOUR])
@pytest.mark.parametrize("scale", [1, 2])
def test_an_array_is_the_picture_that_pil_makes_of_it(shape, levels, scale):
    """Also as floats, and as one of a batch; of colour Pillow rounds the grey to a level."""
    levels = levels.repeat(scale, axis=0).repeat(scale, axis=1)
    expected, _ = read_pictures(Image.fromarray(levels.squeeze()), shape, resize=True)
    floats = levels / np.float32(255)
    for given in (levels, floats, *([floats[None]] if levels.ndim == 3 else [])):
        read, single = read_pictures(given, shape, resize=True)
        assert single == (given.ndim < 4)
        np.testing.assert_allclose(read, expected, atol=0.51 / 255 if levels.shape[-1] == 3 else 1e-7)


def test_an_array_of_another_size_is_refused_unless_it_may_be_resized():
    with pytest.raises(ValueError, match=r"an array of 6x8 pixels .*, or resize=True\. Received: 3x4"):
        read_pictures(GREY, (6, 8, 1))
    views = np.stack([GREY, 255 - GREY], axis=-1)
    assert read_pictures(views, (6, 8, 2), resize=True)[0].shape == (1, 6, 8, 2)
    # What has neither the network's channels nor grey or colour for colour or grey.
    for given, shape in ((views, (6, 8, 1)), (COLOUR, (6, 8, 2)), (np.stack([GREY] * 4), (3, 4, 1))):
        with pytest.raises(ValueError, match="images must have the shape"):
            read_pictures(given, shape, resize=True)


def test_a_path_may_be_an_entry_of_an_array_of_texts(save):
    paths = np.array([str(save(GREY))])
    assert read_pictures(list(paths), (3, 4, 1))[0].shape == (1, 3, 4, 1)
    assert read_pictures(paths[0], (3, 4, 1))[1]


@pytest.mark.parametrize("what", [b"picture", io.BytesIO(b"picture"), iter(())])
def test_what_is_neither_path_nor_picture_nor_array_is_refused_in_words(what):
    with pytest.raises(ValueError, match=r"a picture is a path, a PIL image or an array\. Received: "):
        read_pictures(what, (3, 4, 1))


def test_a_colour_picture_becomes_its_pixels_over_255(save):
    np.testing.assert_array_equal(read_image(save(COLOUR), (3, 4, 3)), COLOUR / np.float32(255))


def test_colour_becomes_grey_by_luma(save):
    luma = COLOUR @ np.array([0.299, 0.587, 0.114])
    grey = read_image(save(COLOUR), (3, 4, 1))
    np.testing.assert_allclose(grey[..., 0] * 255, luma, atol=1)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_grey_becomes_three_equal_channels(save, dtype):
    image = read_image(save(GREY.astype(dtype)), (3, 4, 3))
    assert image.max() > 0
    np.testing.assert_array_equal(image, np.repeat(image[..., :1], 3, axis=-1))


@pytest.mark.parametrize("name", ["picture.png", "picture.tiff"])
def test_sixteen_bits_keep_their_precision(save, name):
    deep = (np.arange(12, dtype="uint16") + 40000).reshape(3, 4)
    image = read_image(save(deep, name), (3, 4, 1))
    np.testing.assert_array_equal(image[..., 0], deep.astype("float32") / 65535)


def test_black_and_white_reaches_both_ends(save):
    bits = GREY > 100
    np.testing.assert_array_equal(read_image(save(bits), (3, 4, 1))[..., 0], bits)


@pytest.mark.parametrize("channels", [1, 3])
def test_transparency_shows_black(save, channels):
    white = np.full((3, 4, 4), 255, "uint8")
    white[..., 3] = GREY
    image = read_image(save(white), (3, 4, channels))
    np.testing.assert_allclose(image * 255, np.repeat(GREY[..., None], channels, -1), atol=1)


def test_the_transparent_colour_of_a_palette_shows_black(tmp_path):
    path = tmp_path / "picture.png"
    picture = Image.new("P", (4, 3), 0)
    picture.putpalette([255, 255, 255, 255, 0, 0])
    picture.putpixel((1, 2), 1)
    picture.save(path, transparency=0)
    image = read_image(path, (3, 4, 3))
    np.testing.assert_array_equal(image[2, 1], [1, 0, 0])
    assert image.sum() == 1


def test_the_orientation_of_a_photograph_is_obeyed(save):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned clockwise by a quarter
    path = save(GREY, exif=exif)
    with Image.open(path) as opened:
        for picture in (path, opened):
            image = read_image(picture, (4, 3, 1))
            np.testing.assert_array_equal(image[..., 0], np.rot90(GREY, -1) / np.float32(255))


def test_a_picture_of_another_size_is_refused_with_both_sizes(save):
    path = save(GREY)
    with pytest.raises(ValueError, match=r"28x30 pixels.*--resize.*Received: 3x4 pixels in .*picture\.png"):
        read_image(path, (28, 30, 1))


@pytest.mark.parametrize("array", [GREY, COLOUR, GREY.astype("uint16") * 257])
def test_a_picture_of_another_size_is_resized_on_demand(save, array):
    path = save(np.repeat(np.repeat(array, 8, axis=0), 8, axis=1))
    large, small = read_image(path, (24, 32, 3)), read_image(path, (3, 4, 3), resize=True)
    assert small.shape == (3, 4, 3)
    assert 0 <= small.min() <= small.max() <= 1
    np.testing.assert_allclose(small.mean(), large.mean(), atol=0.02)
    np.testing.assert_allclose(small, large[4::8, 4::8], atol=0.1)


def test_shrinking_averages_what_it_drops(save):
    board = np.indices((32, 32)).sum(axis=0) % 2 * 255
    small = read_image(save(board.astype("uint8")), (4, 4, 1), resize=True)
    np.testing.assert_allclose(small, 0.5, atol=0.05)


def test_resizing_leaves_a_picture_of_the_right_size_alone(save):
    path = save(GREY)
    np.testing.assert_array_equal(read_image(path, (3, 4, 1), resize=True), read_image(path, (3, 4, 1)))


@pytest.mark.parametrize("content", [b"", b"not a picture", b"\x89PNG\r\n\x1a\n"])
def test_a_file_that_is_no_picture_is_refused_by_name(tmp_path, content):
    path = tmp_path / "notes.png"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"expected a whole, readable picture file.*Received: .*notes\.png"):
        read_image(path, (3, 4, 1))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("name", ["cut.png", "cut.jpg", "cut.gif", "cut.bmp", "cut.tiff"])
def test_a_truncated_picture_is_refused_by_name(save, name):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype="uint8")
    path = save(noise, name)
    whole = path.read_bytes()
    for share in (0.01, 0.1, 0.5, 0.9):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ValueError, match=rf"expected a whole, readable picture file.*{name}"):
            read_image(path, (64, 64, 1))


def test_a_damaged_picture_is_refused_by_name(save):
    path = save(GREY)
    damaged = bytearray(path.read_bytes())
    damaged[36] = 0  # inside the length of the pixels' chunk, which Pillow answers with a SyntaxError
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"expected a whole, readable picture file.*picture\.png"):
        read_image(path, (3, 4, 1))


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path):
    for path in (tmp_path / "missing.png", tmp_path):
        with pytest.raises(ValueError, match=f"Received: {path} "):
            read_image(path, (3, 4, 1))


def test_pixels_without_a_known_white_are_refused_by_name(save, tmp_path):
    with pytest.raises(ValueError, match=r"8 bits per channel.*Pillow mode 'F' in .*picture\.tiff"):
        read_image(save(GREY.astype("float32"), "picture.tiff"), (3, 4, 1))
    path = tmp_path / "lab.tif"
    Image.new("LAB", (4, 3)).save(path)
    with pytest.raises(ValueError, match=r"Pillow mode 'LAB' in .*lab\.tif"):
        read_image(path, (3, 4, 1))


def test_a_stereo_pair_is_one_picture_with_the_left_view_in_its_left_half(save):
    pair = read_image(save(np.hstack([GREY, 255 - GREY])), (3, 4, 2))
    assert pair.dtype == np.float32
    np.testing.assert_array_equal(pair, np.stack([GREY, 255 - GREY], axis=-1) / np.float32(255))


def test_the_views_of_a_pair_are_resized_each_by_itself(save):
    path = save(np.hstack([np.zeros((30, 40), "uint8"), np.full((30, 40), 255, "uint8")]))
    pair = read_image(path, (3, 4, 2), resize=True)
    assert pair.shape == (3, 4, 2)
    np.testing.assert_allclose(pair[..., 0], 0, atol=1e-6)
    np.testing.assert_allclose(pair[..., 1], 1, atol=1e-6)


@pytest.mark.parametrize(("columns", "resize"), [(4, False), (4, True), (9, True), (16, False)])
def test_a_single_view_is_not_taken_for_a_pair(save, columns, resize):
    path = save(np.zeros((3, columns), "uint8"))
    expected = (
        "two views of the aspect ratio 3x4"
        if resize
        else "picture of 3x8 pixels .*left view in the left half"
    )
    with pytest.raises(ValueError, match=rf"{expected}.*Received: 3x{columns} pixels in .*picture\.png"):
        read_image(path, (3, 4, 2), resize=resize)


def test_a_picture_has_one_two_or_three_channels(save):
    with pytest.raises(ValueError, match=r"1 \(grey\), 2 .* or 3 \(colour\) channels.*Received.*\(3, 4, 4\)"):
        read_image(save(GREY), (3, 4, 4))


def png_claiming(path, height, width):
    """A PNG of a few bytes whose header claims a size."""

    def chunk(kind, contents):
        return (
            struct.pack(">I", len(contents))
            + kind
            + contents
            + struct.pack(">I", zlib.crc32(kind + contents))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(100))))
    return path


@pytest.mark.parametrize("sides", [(13_300, 13_300), (4096, 4097), (1, 2**24 + 1)])
def test_more_pixels_than_the_limit_are_refused_by_the_header(tmp_path, sides):
    with pytest.raises(ValueError, match="pixels are more than the 16,777,216 that are read"):
        read_image(png_claiming(tmp_path / "bomb.png", *sides), (28, 28, 1), resize=True)


def test_a_page_of_postscript_is_no_picture_whatever_its_name(tmp_path):
    path = tmp_path / "page.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 28 28\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(ValueError, match="readable picture file"):
        read_image(path, (28, 28, 1))


def test_a_named_pipe_is_refused_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(ValueError, match="no regular file"):
        read_image(tmp_path / "pipe.png", (28, 28, 1))
