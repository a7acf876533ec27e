import numpy as np
import pytest

from capszoo.data.split import ArraySplit, RenderedSplit, Stream, generator

IMAGES = np.arange(5 * 4 * 4, dtype=np.uint8).reshape(5, 4, 4, 1) * 3
LABELS = np.arange(5)


def rendered(seed=0, length=1000):
    def render(indices, uniform):
        return {"images": uniform, "labels": indices}

    return RenderedSplit(length, 3, seed, render, {"images": IMAGES}, "recipe")


def test_a_batch_holds_the_images_asked_for_in_that_order_scaled_to_0_1():
    batch = ArraySplit(IMAGES, LABELS).batch(np.array([3, 1]), None)
    assert batch["images"].dtype == np.float32
    assert batch["labels"].dtype == np.int64
    np.testing.assert_array_equal(batch["images"], IMAGES[[3, 1]] / np.float32(255))
    np.testing.assert_array_equal(batch["labels"], [3, 1])


def test_white_is_exactly_one():
    white = np.full((1, 2, 2, 1), 255, np.uint8)
    assert (ArraySplit(white, [0]).batch(np.array([0]), None)["images"] == 1).all()


def test_factors_go_into_the_batch():
    split = ArraySplit(IMAGES, LABELS, {"angle": LABELS * 10.0})
    np.testing.assert_array_equal(split.batch(np.array([4, 0]), None)["angle"], [40, 0])


def test_augmentation_needs_an_rng():
    split = ArraySplit(IMAGES, LABELS, augment=lambda images, rng: images * 0)
    assert split.batch(LABELS, None)["images"].any()
    assert not split.batch(LABELS, np.random.default_rng(0))["images"].any()


@pytest.mark.parametrize("changed", ["images", "labels", "factors"])
def test_the_fingerprint_changes_with_every_array(changed):
    arrays = {
        "images": IMAGES,
        "labels": LABELS,
        "factors": {"name": np.array([b"a", b"b", b"c", b"d", b"e"], object)},
    }
    same = {key: (dict(value) if key == "factors" else value.copy()) for key, value in arrays.items()}
    assert ArraySplit(**arrays).fingerprint() == ArraySplit(**same).fingerprint()
    if changed == "factors":
        same["factors"]["name"] = np.array([b"a", b"b", b"c", b"d", b"x"], object)
    else:
        same[changed].flat[0] += 1
    assert ArraySplit(**arrays).fingerprint() != ArraySplit(**same).fingerprint()


@pytest.mark.parametrize("images", [IMAGES.astype(np.float32), IMAGES[..., 0]])
def test_images_that_are_not_uint8_with_four_axes_are_refused(images):
    with pytest.raises(ValueError, match="Received"):
        ArraySplit(images, LABELS)


def test_arrays_of_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match=r"labels must have one row per image, 5\. Received: 4"):
        ArraySplit(IMAGES, LABELS[:4])


def test_an_evaluation_image_does_not_depend_on_its_batch():
    split = rendered()
    whole = split.batch(np.arange(1000), None)["images"]
    some = np.array([999, 0, 257, 256, 255, 0])
    np.testing.assert_array_equal(split.batch(some, None)["images"], whole[some])
    np.testing.assert_array_equal(rendered(length=300).batch(np.arange(300), None)["images"], whole[:300])
    assert len(np.unique(whole)) == whole.size


def test_evaluation_images_depend_on_the_seed():
    first, second = (rendered(seed).batch(np.arange(9), None)["images"] for seed in (0, 1))
    assert (first != second).all()
    assert rendered(0).fingerprint() != rendered(1).fingerprint() != ""


def test_training_images_are_drawn_from_the_rng():
    split, indices = rendered(), np.arange(4)
    once, again = (split.batch(indices, np.random.default_rng(1))["images"] for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert (split.batch(indices, np.random.default_rng(2))["images"] != once).all()


@pytest.mark.parametrize("index", [-1, 1000])
def test_an_index_beyond_the_split_is_an_error(index):
    with pytest.raises(IndexError, match="Received"):
        rendered().batch(np.array([index]), None)


def test_generators_of_different_streams_and_numbers_share_nothing():
    draws = [generator(0, stream, number).random(50) for stream in Stream for number in range(3)]
    assert len(np.unique(draws)) == np.size(draws)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_an_error(seed):
    with pytest.raises(ValueError, match="Received"):
        generator(seed, Stream.ORDER, 0)
