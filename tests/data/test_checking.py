"""What counts as an image."""

import numpy as np
import pytest
from PIL import Image

from capszoo.data.checking import ImageError, check_shape, check_values, to_float
from capszoo.data.images import read_pictures

UNIT = np.linspace(0, 1, 2 * 28 * 28, dtype="float32").reshape(2, 28, 28, 1)


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((28, 28, 1), r"images\[None\]"),
        ((2, 28, 28), r"images\[\.\.\., None\]"),
        ((28, 28), r"images\[\.\.\., None\]"),
        ((2, 1, 28, 28), "channels first"),
        ((2, 28, 28, 3), "3 channels instead of 1"),
        ((2, 32, 32, 1), r"\[2, 32, 32, 1\]"),
    ],
)
def test_another_shape_is_refused_with_what_was_probably_meant(shape, hint):
    with pytest.raises(ImageError, match=rf"\[B, 28, 28, 1\]\. Received: .*{hint}.*model\.preprocess"):
        check_shape(shape, (28, 28, 1))


def test_a_batch_of_any_size_has_the_shape():
    check_shape((None, 28, 28, 1), (28, 28, 1))
    check_shape((0, 28, 28, 1), (28, 28, 1))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (UNIT * 255, r"in \[0, 1\]\. Received: 0 to 255\..*uint8"),
        (UNIT - 0.5, r"in \[0, 1\]\. Received: -0\.5"),
        (np.where(UNIT > 0.5, np.nan, UNIT), "none of them NaN"),
        (np.where(UNIT > 0.5, np.inf, UNIT), "finite"),
        ((UNIT * 255).astype("int64"), "Received: int64"),
        (UNIT > 0.5, "Received: bool"),
    ],
)
def test_values_that_images_do_not_have_are_refused(images, message):
    with pytest.raises(ImageError, match=message):
        check_values(images)


def test_a_network_of_standardised_images_refuses_raw_ones():
    check_values(UNIT - UNIT.mean(), standardised=True)
    check_values(UNIT * 0, standardised=True)
    for raw in (UNIT, (UNIT * 255).astype("uint8")):
        with pytest.raises(ImageError, match=r"model\.preprocess"):
            check_values(raw, standardised=True)


def test_grey_levels_are_a_255th_each():
    levels = np.array([[[[0], [51], [255]]]], "uint8")
    check_values(levels)
    np.testing.assert_allclose(to_float(levels).ravel(), [0, 0.2, 1])


def test_pictures_come_as_paths_as_pil_images_and_as_arrays(tmp_path):
    levels = (UNIT * 255).astype("uint8")
    picture = Image.fromarray(levels[1, ..., 0])
    picture.save(tmp_path / "picture.png")
    one = levels[1].astype("float32") / 255
    for given in (tmp_path / "picture.png", str(tmp_path / "picture.png"), picture, levels[1], one):
        read, single = read_pictures(given, (28, 28, 1))
        assert single
        np.testing.assert_array_equal(read, one[None])
    read, single = read_pictures([picture, levels[0]], (28, 28, 1))
    assert not single
    assert read.shape == (2, 28, 28, 1)
    np.testing.assert_array_equal(read_pictures(levels, (28, 28, 1))[0][1], one)


def test_pictures_of_another_size_are_resized_where_that_is_asked_for():
    picture = Image.new("RGB", (40, 30), (255, 255, 255))
    with pytest.raises(ValueError, match="28x28"):
        read_pictures(picture, (28, 28, 1))
    read, _ = read_pictures(picture, (28, 28, 1), resize=True)
    np.testing.assert_allclose(read, 1)
    for none in ([], (), np.zeros((0, 28, 28, 1), "uint8")):
        with pytest.raises(ValueError, match="at least one picture"):
            read_pictures(none, (28, 28, 1))


def test_a_number_is_no_picture():
    with pytest.raises(ValueError, match="images must have the shape"):
        read_pictures(np.array(0.5), (28, 28, 1))
