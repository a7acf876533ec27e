import numpy as np
import pytest
from scipy import ndimage

from capszoo.data.augment import affine, deform, mirror, place, rotate, shift, translate

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(1, 256, size=(6, 8, 9, 2)).astype(np.uint8)


def test_place_puts_the_image_in_the_middle_of_zeros():
    placed = place(IMAGES, 3)
    assert placed.shape == (6, 14, 15, 2)
    assert placed.dtype == np.uint8
    np.testing.assert_array_equal(placed[:, 3:-3, 3:-3], IMAGES)
    assert placed.sum(dtype=int) == IMAGES.sum(dtype=int)


def test_translate_moves_down_and_right_and_fills_with_zeros():
    rows, columns = np.array([2, 0, -3, 8, 0, 1]), np.array([-1, 0, 4, 0, -20, 1])
    moved = translate(IMAGES, rows, columns)
    assert moved.dtype == IMAGES.dtype
    for image, result, row, column in zip(IMAGES, moved, rows, columns, strict=True):
        expected = ndimage.shift(image, (row, column, 0), order=0, mode="constant")
        np.testing.assert_array_equal(result, expected)


def test_shift_draws_every_offset_up_to_its_reach_and_none_beyond():
    image = np.zeros((2000, 9, 9, 1), np.uint8)
    image[:, 4, 4] = 1
    shifted = shift(image, np.random.default_rng(0), 2)
    counts = shifted.sum(axis=0)[..., 0]
    assert (counts[2:7, 2:7] > 40).all()  # 80 expected in each of 25 places
    assert counts.sum() == counts[2:7, 2:7].sum() == 2000


def test_mirror_exchanges_left_and_right_of_about_half_the_images():
    images = np.arange(400 * 6).reshape(400, 2, 3, 1)
    mirrored = mirror(images, np.random.default_rng(0))
    same = np.all(mirrored == images, axis=(1, 2, 3))
    exchanged = np.all(mirrored == images[:, :, ::-1], axis=(1, 2, 3))
    assert np.all(same ^ exchanged)
    assert 150 < exchanged.sum() < 250
    assert mirror(images[:0], np.random.default_rng(0)).shape == (0, 2, 3, 1)


def test_shift_is_a_function_of_the_rng():
    first, again, other = (shift(IMAGES, np.random.default_rng(seed), 2) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_the_identity_changes_nothing():
    np.testing.assert_array_equal(rotate(IMAGES, np.zeros(6)), IMAGES)


def test_an_affine_map_by_whole_pixels_is_a_translation():
    matrices = np.tile([[1.0, 0, 2], [0, 1, -3]], (6, 1, 1))
    expected = translate(IMAGES, np.full(6, 2), np.full(6, -3))
    np.testing.assert_allclose(affine(IMAGES, matrices), expected, atol=1e-3)


def test_a_quarter_turn_is_counter_clockwise():
    square = IMAGES[:, :, :8]
    np.testing.assert_allclose(rotate(square, np.full(6, 90.0)), np.rot90(square, axes=(1, 2)), atol=1e-2)


@pytest.mark.parametrize("size", [None, (12, 11), (5, 6)])
def test_affine_agrees_with_scipy(size):
    matrices = np.concatenate(
        [np.eye(2) + RNG.uniform(-0.4, 0.4, (6, 2, 2)), RNG.uniform(-3, 3, (6, 2, 1))], axis=-1
    )
    moved = affine(IMAGES, matrices, size)
    height, width = size or (8, 9)
    assert moved.shape == (6, height, width, 2)
    assert moved.dtype == np.float32
    to_middle, from_middle = (np.array([3.5, 4.0]), np.array([(height - 1) / 2, (width - 1) / 2]))
    for image, result, matrix in zip(IMAGES, moved, matrices, strict=True):
        inverse = np.linalg.inv(matrix[:, :2])
        offset = to_middle - inverse @ (from_middle + matrix[:, 2])
        for channel in range(2):
            expected = ndimage.affine_transform(
                image[..., channel].astype(float),
                inverse,
                offset,
                (height, width),
                order=1,
                mode="grid-constant",
            )
            np.testing.assert_allclose(result[..., channel], expected, atol=0.02)


def test_outside_an_image_is_nothing_or_its_nearest_pixel():
    matrices = np.tile([[1.0, 0, 2], [0, 1, -3]], (6, 1, 1))
    moved = affine(IMAGES, matrices, outside="edge")
    for image, result in zip(IMAGES, moved, strict=True):
        np.testing.assert_allclose(
            result, ndimage.shift(image, (2, -3, 0), order=0, mode="nearest"), atol=1e-3
        )


def test_images_are_stretched_along_rows_and_columns_and_then_turned():
    deformed = deform(IMAGES, np.random.default_rng(3), 40, 0.5)
    again = np.random.default_rng(3)
    angles, factors = np.deg2rad(again.uniform(-40, 40, 6)), again.uniform(0.5, 1.5, (6, 1, 2))[:, 0]
    for image, result, angle, (row, column) in zip(IMAGES, deformed, angles, factors, strict=True):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        stretch = np.array([[row, 0], [0, column]])
        inverse, middle = np.linalg.inv(turn @ stretch), np.array([3.5, 4.0])
        for channel in range(2):
            plane = image[..., channel].astype(float)
            expected = ndimage.affine_transform(
                plane, inverse, middle - inverse @ middle, order=1, mode="grid-constant"
            )
            np.testing.assert_allclose(result[..., channel], expected, atol=0.02)
