import numpy as np
import pytest

from capszoo.data import AffnistSynth, Mnist
from capszoo.data.affnist_synth import DRAWS, draw_maps
from capszoo.data.augment import affine

ALL = np.arange(40)


def test_an_image_is_the_digit_under_its_transform(tiny_data):
    moved = AffnistSynth(validation=20).open("test").batch(ALL, None)
    digits = Mnist(validation=20).open("test").batch(ALL, None)
    assert moved["images"].shape == (40, 40, 40, 1)
    np.testing.assert_allclose(
        moved["images"], affine(digits["images"], moved["transform"], (40, 40)), atol=1e-4
    )
    np.testing.assert_array_equal(moved["labels"], digits["labels"])


def test_no_ink_leaves_the_canvas_and_some_reaches_its_edge(tiny_data):
    split = AffnistSynth(validation=20, transforms=10).open("test")
    moved = split.batch(np.arange(len(split)), None)
    digits = Mnist(validation=20).open("test").batch(np.arange(len(split)) % 40, None)["images"]
    wide = affine(digits, moved["transform"], (80, 80))
    np.testing.assert_allclose(moved["images"].sum((1, 2, 3)), wide.sum((1, 2, 3)), rtol=1e-3)
    for edge in (
        moved["images"][:, 0],
        moved["images"][:, -1],
        moved["images"][:, :, 0],
        moved["images"][:, :, -1],
    ):
        assert edge.any()


def test_rotation_shear_and_expansion_keep_to_their_ranges():
    uniform = np.random.default_rng(0).random((2000, DRAWS))
    uniform[:2] = [[0], [1]]
    digits = np.zeros((2000, 28, 28, 1), np.uint8)
    digits[:, 10:18, 10:18] = 1
    linear = draw_maps(digits, uniform)[:, :, :2]
    # The second column is R (0, 1) times the horizontal expansion; R S keeps areas.
    rotation = np.degrees(np.arctan2(-linear[:, 0, 1], linear[:, 1, 1]))
    horizontal = np.linalg.norm(linear[:, :, 1], axis=1)
    vertical = np.linalg.det(linear) / horizontal
    shear = np.einsum("ni,ni->n", linear[:, :, 0], linear[:, :, 1]) / (horizontal * vertical)
    for value, low, high in (
        (rotation, -20, 20),
        (shear, -0.2, 0.2),
        (horizontal, 0.8, 1.2),
        (vertical, 0.8, 1.2),
    ):
        np.testing.assert_allclose([value.min(), value.max()], [low, high], rtol=1e-6)


def test_evaluation_images_are_fixed_by_seed_and_index(tiny_data):
    one, many, other = (
        AffnistSynth(validation=20, transforms=transforms, seed=seed).open("test")
        for transforms, seed in ((1, 0), (3, 0), (1, 1))
    )
    assert len(many) == 3 * len(one)
    transform = one.batch(ALL, None)["transform"]
    np.testing.assert_array_equal(many.batch(ALL, None)["transform"], transform)
    np.testing.assert_array_equal(one.batch(ALL[[7, 3]], None)["transform"], transform[[7, 3]])
    assert (many.batch(ALL + 40, None)["transform"] != transform).all(axis=(1, 2)).all()
    assert (other.batch(ALL, None)["transform"] != transform).all(axis=(1, 2)).all()


def test_the_fingerprint_tells_what_the_test_images_depend_on(tiny_data):
    def fingerprint(**options):
        return AffnistSynth(**{"validation": 20, **options}).open("test").fingerprint()

    assert fingerprint() == fingerprint(validation=10)
    assert len({fingerprint(), fingerprint(seed=1), fingerprint(transforms=2)}) == 3


@pytest.mark.parametrize("options", [{"transforms": 0}, {"validation": -1}, {"seed": -1}])
def test_illegal_options_are_refused(options):
    with pytest.raises(ValueError, match="Received"):
        AffnistSynth(**options)
