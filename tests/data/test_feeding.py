import keras
import numpy as np
import pytest

from capszoo.data.feeding import Segment
from capszoo.data.pipeline import Batches
from capszoo.data.split import ArraySplit


@pytest.fixture
def batches():
    images = np.arange(24, dtype=np.uint8).reshape(24, 1, 1, 1) * 10
    return Batches(
        ArraySplit(images, np.arange(24) * 7 % 24), 4, seed=0, arrange=lambda b: (b["images"], b["labels"])
    )


def test_a_segment_is_the_batches_of_its_steps(batches):
    segment = Segment(batches, 4, 9)
    assert len(segment) == 5
    for index in range(5):
        np.testing.assert_array_equal(segment[index][0], batches.batch_at(4 + index)[0])


def trained(batches, *segments):
    """The weight of a one-weight model after the segments; the order of the steps leaves its mark on it."""
    model = keras.Sequential(
        [keras.Input((1, 1, 1)), keras.layers.Flatten(), keras.layers.Dense(1, use_bias=False)]
    )
    model.layers[-1].set_weights([np.ones((1, 1), np.float32)])
    model.compile(keras.optimizers.SGD(0.5), "mse")
    for first, last in segments:
        model.fit(Segment(batches, first, last), shuffle=False, verbose=0)
    return model.get_weights()[0].item()


def test_training_in_pieces_is_training_at_once(batches):
    assert trained(batches, (0, 9)) == trained(batches, (0, 2), (2, 7), (7, 9))
    assert trained(batches, (0, 9)) != trained(batches, (2, 9), (0, 2))


@pytest.mark.parametrize("steps", [(-1, 3), (3, 3)])
def test_a_segment_without_steps_is_refused(batches, steps):
    with pytest.raises(ValueError, match="Received"):
        Segment(batches, *steps)
