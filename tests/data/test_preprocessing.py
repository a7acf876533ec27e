"""Preprocessing: what the network sees of a raw image."""

import keras
import numpy as np
import pytest

from capszoo.data.checking import ImageError
from capszoo.data.cropping import standardise
from capszoo.data.labelled import StandardisedSplit
from capszoo.data.preprocessing import Preprocessing
from capszoo.data.split import ArraySplit

IMAGES = np.random.default_rng(0).random((3, 12, 12, 2), dtype="float32")


def test_without_options_images_pass_unchanged():
    np.testing.assert_array_equal(Preprocessing()(IMAGES), IMAGES)


def test_grey_levels_are_taken_as_what_they_stand_for():
    levels = np.round(255 * IMAGES).astype("uint8")
    layer = Preprocessing(resize=6, crop=4, standardise=True)
    np.testing.assert_array_equal(layer(levels), layer(levels.astype("float32") / np.float32(255)))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 12, 12, 1), "int64"), r"uint8 of 0\.\.255 or floats in \[0, 1\]\. Received: int64"),
        (IMAGES[0], r"\[B, H, W, C\]\. Received: \[12, 12, 2\]"),
    ],
)
def test_what_is_no_batch_of_images_is_refused(images, message):
    with pytest.raises(ImageError, match=message):
        Preprocessing(crop=4)(images)


def test_halving_averages_two_by_two():
    blocks = IMAGES.reshape(3, 6, 2, 6, 2, 2).mean(axis=(2, 4))
    np.testing.assert_allclose(Preprocessing(resize=6)(IMAGES), blocks, atol=1e-6)


def test_the_crop_is_the_centre_rounded_to_the_upper_left():
    np.testing.assert_array_equal(Preprocessing(crop=(4, 7))(IMAGES), IMAGES[:, 4:8, 2:9])


def test_standardised_images_have_mean_zero_and_deviation_one_over_both_channels_jointly():
    made = np.asarray(Preprocessing(standardise=True)(IMAGES * [1.0, 0.2]))
    np.testing.assert_allclose(made.mean(axis=(1, 2, 3)), 0.0, atol=1e-6)
    np.testing.assert_allclose(made.std(axis=(1, 2, 3)), 1.0, atol=1e-5)
    assert np.all(np.abs(made.mean(axis=(1, 2))) > 0.1), "each channel alone keeps its own mean"


def test_a_flat_image_becomes_zero_and_not_noise():
    levels = np.arange(256, dtype="float32")[:, None, None, None] / 255
    flat = np.broadcast_to(levels, (256, 32, 32, 2))
    np.testing.assert_array_equal(Preprocessing(standardise=True)(flat), 0)
    np.testing.assert_array_equal(standardise(flat), 0)


def test_standardised_pictures_are_others_than_they_were_before():
    """What is measured or kept of one is not of the other."""
    levels, labels = (IMAGES * 255).astype("uint8"), np.arange(len(IMAGES))
    one, other = StandardisedSplit(levels, labels), ArraySplit(levels, labels)
    assert one.fingerprint() != other.fingerprint()
    assert one.fingerprint() == StandardisedSplit(levels, labels).fingerprint()


def test_resize_comes_before_crop_and_standardisation_last():
    by_hand = Preprocessing(standardise=True)(Preprocessing(crop=4)(Preprocessing(resize=8)(IMAGES)))
    np.testing.assert_allclose(Preprocessing(8, 4, True)(IMAGES), by_hand, atol=1e-6)


def test_an_image_alone_and_in_a_batch_is_treated_the_same():
    layer = Preprocessing(resize=8, crop=4, standardise=True)
    np.testing.assert_allclose(layer(IMAGES)[1:2], layer(IMAGES[1:2]), atol=1e-6)


def test_a_saved_layer_comes_back_with_its_options():
    layer = Preprocessing(resize=(8, 9), crop=4, standardise=True)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    np.testing.assert_array_equal(again(IMAGES), layer(IMAGES))


@pytest.mark.parametrize("options", [{"resize": 0}, {"crop": (4,)}, {"resize": 3.5}, {"crop": (4, -1)}])
def test_impossible_sides_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be .*Received: "):
        Preprocessing(**options)


def test_a_crop_larger_than_the_image_is_refused():
    with pytest.raises(ValueError, match=r"crop of \(13, 13\).*Received: \(3, 12, 12, 2\)"):
        Preprocessing(crop=13)(IMAGES)
