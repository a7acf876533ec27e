"""What capsules say of a split: in order, and computed once for as long as nothing changes."""

import gc

import numpy as np
import pytest
from support import Recorded

from capszoo.config import ConfigError
from capszoo.data.split import ArraySplit
from capszoo.protocols import capsule_outputs as module
from capszoo.protocols.capsule_outputs import KEPT, capsule_outputs, once


class Sums:
    """A network of one weight that counts the images it has seen."""

    def __init__(self):
        self.weights = [np.ones(1)]
        self.seen = 0

    def predict_on_batch(self, images):
        self.seen += len(images)
        return {"poses": self.weights[0] * images.reshape(len(images), 2, -1), "scores": images}


def split_of(seed=0, images=20):
    rng = np.random.default_rng(seed)
    return ArraySplit(rng.integers(0, 256, (images, 4, 4, 1)).astype(np.uint8), rng.integers(0, 3, images))


def test_outputs_stand_in_the_order_of_the_images_whatever_the_batches():
    split, progress = split_of(), Recorded()
    outputs, labels = capsule_outputs(Sums(), split, batch_size=6, progress=progress)
    assert set(outputs) == {"poses"}
    np.testing.assert_array_equal(outputs["poses"], (split.images / np.float32(255)).reshape(20, 2, 8))
    np.testing.assert_array_equal(labels, split.labels)
    assert progress.counts == [6, 6, 6, 2]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_outputs_that_are_no_numbers_are_named(value):
    model = Sums()
    model.weights[0][0] = value
    with pytest.raises(ValueError, match="output 'poses' has values that are NaN or infinite"):
        capsule_outputs(model, split_of())


def test_a_network_looks_once_at_the_same_images():
    model, progress = Sums(), Recorded()
    first, _ = capsule_outputs(model, split_of())
    again, _ = capsule_outputs(model, split_of(), progress=progress)
    assert progress.counts == [20]
    np.testing.assert_array_equal(first["poses"], again["poses"])
    assert model.seen == 20
    capsule_outputs(model, split_of(seed=1))
    assert model.seen == 40


def test_a_changed_weight_and_another_network_look_anew():
    model = Sums()
    first, _ = capsule_outputs(model, split_of())
    model.weights[0] *= 2
    doubled, _ = capsule_outputs(model, split_of())
    np.testing.assert_allclose(doubled["poses"], 2 * first["poses"])
    other = Sums()
    capsule_outputs(other, split_of())
    assert (model.seen, other.seen) == (40, 20)


def test_what_is_computed_is_known_by_its_name_and_not_kept_for_ever():
    model, split = Sums(), split_of()
    assert [once(model, split, number, lambda number=number: number) for number in range(KEPT + 1)] == list(
        range(KEPT + 1)
    )
    assert once(model, split, KEPT, lambda: pytest.fail("computed twice")) == KEPT
    assert once(model, split, 0, lambda: "anew") == "anew"


def test_results_go_with_their_model():
    model = Sums()
    capsule_outputs(model, split_of())
    assert model in module._kept
    count = len(module._kept)
    del model
    gc.collect()
    assert len(module._kept) < count


def test_what_is_missing_is_said_after_the_first_batch_and_again():
    model = Sums()
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"needs a model with the output 'logits'\. Received one of: \w+"
        ):
            capsule_outputs(model, split_of(), ("logits",), batch_size=5)
    assert model.seen == 10
    capsule_outputs(model, split_of())
    with pytest.raises(ConfigError, match=r"needs a model with the output 'logits'\. Received one of: \w+"):
        capsule_outputs(model, split_of(), ("logits",))


def test_several_labels_per_image_are_refused_with_the_first_batch():
    model, split = Sums(), split_of()
    split.labels = np.stack([split.labels] * 2, axis=1)
    with pytest.raises(ConfigError, match="one label per image"):
        capsule_outputs(model, split, batch_size=5)
    assert model.seen == 5
