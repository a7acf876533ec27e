import numpy as np
import pytest

from capszoo.data.pipeline import Batches, evaluation_batches
from capszoo.data.split import ArraySplit


def noise(images, rng):
    return rng.integers(0, 256, images.shape).astype(np.uint8)


def numbered(count, augment=None):
    """A split whose labels are the indices."""
    return ArraySplit(np.zeros((count, 2, 2, 1), np.uint8), np.arange(count), augment=augment)


def test_any_step_gives_the_same_batch_whichever_steps_came_before():
    straight = [Batches(numbered(20, noise), 3, seed=5).batch_at(step) for step in range(15)]
    resumed = Batches(numbered(20, noise), 3, seed=5)
    for step in (14, 3, 7, 0, 14):
        for key, array in resumed.batch_at(step).items():
            np.testing.assert_array_equal(array, straight[step][key])


def test_an_epoch_uses_an_image_at_most_once_and_leaves_out_the_rest():
    batches = Batches(numbered(20), 3, seed=0)
    assert batches.steps_per_epoch == 6
    labels = np.concatenate([batches.batch_at(step)["labels"] for step in range(6)])
    assert len(labels) == len(set(labels)) == 18


def test_epochs_and_seeds_have_their_own_order():
    batches, other = (Batches(numbered(20), 20, seed=0), Batches(numbered(20), 20, seed=1))
    orders = [tuple(batches.batch_at(epoch)["labels"]) for epoch in range(4)] + [
        tuple(other.batch_at(0)["labels"])
    ]
    assert len(set(orders)) == 5
    assert all(sorted(order) == list(range(20)) for order in orders)


def test_steps_and_seeds_have_their_own_augmentation():
    batches, other = (Batches(numbered(20, noise), 5, seed) for seed in (0, 1))
    images = [batches.batch_at(step)["images"].tobytes() for step in range(8)]
    images.append(other.batch_at(0)["images"].tobytes())
    assert len(set(images)) == 9


@pytest.mark.parametrize("batch_size", [0, 21])
def test_a_batch_size_the_split_cannot_fill_is_refused(batch_size):
    with pytest.raises(ValueError, match=f"Received: {batch_size}"):
        Batches(numbered(20), batch_size, seed=0)


def test_evaluation_sees_every_image_once_in_order_without_augmentation():
    batches = list(evaluation_batches(numbered(20, noise), 8))
    assert [len(batch["labels"]) for batch in batches] == [8, 8, 4]
    np.testing.assert_array_equal(np.concatenate([batch["labels"] for batch in batches]), np.arange(20))
    assert not any(batch["images"].any() for batch in batches)
