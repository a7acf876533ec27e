import numpy as np
import pytest

from capszoo.data import Mnist, RotatedMnist
from capszoo.data.augment import rotate

ALL = np.arange(40)


def test_angle_zero_is_mnist(tiny_data):
    turned = RotatedMnist(validation=20, max_angle=0.0).open("test").batch(ALL, None)
    np.testing.assert_array_equal(
        turned["images"], Mnist(validation=20).open("test").batch(ALL, None)["images"]
    )


def test_an_image_is_the_digit_turned_by_its_angle(tiny_data):
    turned = RotatedMnist(validation=20).open("test").batch(ALL, None)
    digits = Mnist(validation=20).open("test").batch(ALL, None)
    np.testing.assert_allclose(turned["images"], rotate(digits["images"], turned["angle"]), atol=1e-3)
    np.testing.assert_array_equal(turned["labels"], digits["labels"])


def test_angles_fill_the_range_and_keep_to_it(tiny_data):
    angle = RotatedMnist(validation=20, max_angle=45.0).open("test").batch(ALL, None)["angle"]
    assert (np.abs(angle) <= 45).all()
    assert angle.min() < -30
    assert angle.max() > 30


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_an_image_keeps_its_angle_unless_it_is_trained_on(tiny_data, split):
    opened, indices = RotatedMnist(validation=20).open(split), np.array([7, 3])
    fixed = opened.batch(indices, None)["angle"]
    np.testing.assert_array_equal(opened.batch(np.arange(20), None)["angle"][indices], fixed)
    assert (opened.batch(indices, np.random.default_rng(0))["angle"] != fixed).all()


def test_the_fingerprint_tells_what_the_test_images_depend_on(tiny_data):
    def fingerprint(**options):
        return RotatedMnist(**{"validation": 20, **options}).open("test").fingerprint()

    assert fingerprint() == fingerprint(validation=10)
    assert len({fingerprint(), fingerprint(seed=1), fingerprint(max_angle=90.0)}) == 3


@pytest.mark.parametrize("angle", [-1.0, 181.0])
def test_an_angle_out_of_range_is_refused(angle):
    with pytest.raises(ValueError, match="max_angle must be in"):
        RotatedMnist(max_angle=angle)
