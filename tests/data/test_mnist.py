import numpy as np
import pytest

from capszoo.config import ConfigError, parse_section
from capszoo.data import Batches, FashionMnist, Mnist
from capszoo.data.augment import deform, mirror, rotate, shift

DATA_SETS = pytest.mark.parametrize("data_set", [Mnist, FashionMnist])


@DATA_SETS
def test_images_have_the_announced_shape(tiny_data, data_set):
    for options in (data_set(validation=20), data_set(validation=20, pad=6, shift=6)):
        for split, count in (("train", 40), ("validation", 20), ("test", 40)):
            opened = options.open(split)
            assert len(opened) == count
            assert opened.batch(np.arange(3), None)["images"].shape == (3, *options.image_shape)
    assert options.image_shape == (40, 40, 1)


@DATA_SETS
def test_there_is_a_name_for_each_class(tiny_data, data_set):
    assert len(data_set.class_names) == data_set.num_classes == 10
    assert len(set(data_set.class_names)) == 10


def test_the_two_data_sets_are_different_files(tiny_data):
    assert Mnist().__class__ is not FashionMnist
    assert (
        Mnist(validation=20).open("test").fingerprint()
        != FashionMnist(validation=20).open("test").fingerprint()
    )


def test_only_training_images_are_shifted(tiny_data):
    for split in ("train", "validation", "test"):
        opened, indices = Mnist(validation=20).open(split), np.arange(20)
        straight = opened.batch(indices, None)["images"]
        assert (opened.batch(indices, np.random.default_rng(0))["images"] != straight).any() == (
            split == "train"
        )


def test_shift_zero_is_no_shift(tiny_data, image_set):
    batch = Batches(Mnist(validation=20, shift=0).open("train"), 8, seed=0).batch_at(0)["images"]
    assert image_set(batch) <= image_set(
        Mnist(validation=20).open("train").batch(np.arange(40), None)["images"]
    )


def test_training_images_are_turned_by_up_to_the_angle(tiny_data):
    split, indices = Mnist(validation=20, shift=0, turn=30).open("train"), np.arange(40)
    turned, straight = (split.batch(indices, rng)["images"] for rng in (np.random.default_rng(0), None))
    angles = np.random.default_rng(0).uniform(-30, 30, 40)
    assert angles.max() > 20
    assert angles.min() < -20
    np.testing.assert_allclose(turned, rotate(straight, angles), atol=1e-6)


def test_images_are_turned_and_then_shifted(tiny_data):
    indices = np.arange(40)
    both = (
        Mnist(validation=20, shift=2, turn=30)
        .open("train")
        .batch(indices, np.random.default_rng(0))["images"]
    )
    again = np.random.default_rng(0)
    turned = Mnist(validation=20, shift=0, turn=30).open("train").batch(indices, again)["images"]
    np.testing.assert_allclose(both, shift(turned, again, 2), atol=1e-6)


def test_images_are_stretched_too(tiny_data):
    split, indices = Mnist(validation=20, shift=0, turn=5, stretch=0.3).open("train"), np.arange(40)
    stretched, straight = (split.batch(indices, rng)["images"] for rng in (np.random.default_rng(0), None))
    np.testing.assert_allclose(stretched, deform(straight, np.random.default_rng(0), 5, 0.3), atol=1e-6)


def test_training_images_of_garments_are_mirrored_and_then_shifted(tiny_data):
    indices, options = np.arange(40), FashionMnist(validation=20, shift=2, mirror=True)
    straight = options.open("train").batch(indices, None)["images"]
    again = np.random.default_rng(0)
    expected = shift(mirror(straight, again), again, 2)
    assert (expected != shift(straight, np.random.default_rng(0), 2)).any()
    changed = options.open("train").batch(indices, np.random.default_rng(0))["images"]
    np.testing.assert_array_equal(changed, expected)
    test = options.open("test")
    np.testing.assert_array_equal(
        test.batch(indices, np.random.default_rng(0))["images"], test.batch(indices, None)["images"]
    )


@pytest.mark.parametrize("angle", [-1, 181, np.nan])
def test_an_angle_out_of_range_is_refused(angle):
    with pytest.raises(ConfigError, match=r"turn.* Received: (-1|181|nan)"):
        parse_section("data", {"name": "mnist", "turn": angle})


def test_the_expanded_set_keeps_all_ink_on_its_canvas(tiny_data):
    split, indices = Mnist(validation=20, pad=6, shift=6).open("train"), np.arange(40)
    shifted, straight = (split.batch(indices, rng)["images"] for rng in (np.random.default_rng(0), None))
    np.testing.assert_allclose(shifted.sum((1, 2, 3)), straight.sum((1, 2, 3)), rtol=1e-5)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_a_recipe_can_name_it(name):
    assert parse_section("data", {"name": name, "pad": 6, "shift": 6}).image_shape == (40, 40, 1)
    with pytest.raises(ConfigError, match=r"shift must be at least 0\. Received: -1"):
        parse_section("data", {"name": name, "shift": -1})


def splits_of(data_set, image_set):
    """The three splits, which have no image in common."""
    splits = [data_set.open(split) for split in ("train", "validation", "test")]
    train, validation, test = (image_set(split.images) for split in splits)
    assert not train & validation
    assert not train & test
    assert not validation & test
    return splits


@DATA_SETS
def test_splits_are_disjoint_and_have_all_images_of_each_class(tiny_data, image_set, data_set):
    splits = splits_of(data_set(validation=20), image_set)
    labels = np.concatenate([split.labels for split in splits[:2]])
    np.testing.assert_array_equal(np.bincount(labels), np.full(10, 6))
    np.testing.assert_array_equal(np.bincount(splits[2].labels), np.full(10, 4))


@pytest.mark.slow
@pytest.mark.data
def test_mnist_is_the_published_one(real_mnist, image_set):
    splits = splits_of(Mnist(), image_set)
    assert [len(split) for split in splits] == [55_000, 5_000, 10_000]
    labels = np.concatenate([split.labels for split in splits[:2]])
    np.testing.assert_array_equal(
        np.bincount(labels), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    )
    np.testing.assert_array_equal(
        np.bincount(splits[2].labels), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    )
