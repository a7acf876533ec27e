"""Objects that begin as clusters of the arrangements of parts."""

import keras
import numpy as np
import pytest
from support import fill
from tiny import PROBABILISTIC as TINY

from capszoo.models import ProbabilisticCapsNet
from capszoo.models.clusters import objects_from_clusters
from capszoo.recipes import parse_recipe
from capszoo.training import train
from capszoo.weight_files import read_arrays

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")

NET = ProbabilisticCapsNet(**TINY)


class Split:
    """Images of three kinds in turn, with a little noise."""

    kinds = np.random.default_rng(0).random((3, 10, 12, 1), dtype="float32")

    def __len__(self):
        return 60

    def batch(self, indices, rng):
        assert rng is None
        noise = np.random.default_rng(1).random((60, 10, 12, 1), dtype="float32")
        return {"images": (self.kinds[np.arange(60) % 3] + 0.05 * noise)[indices]}


@pytest.fixture(scope="module")
def clustered():
    """A model whose objects are clusters, and the parts' poses and presences of the images."""
    keras.utils.set_random_seed(0)
    model = fill(NET.build((10, 12, 1)), scale=0.3)
    objects_from_clusters(model, Split())
    parts = model.get_layer("part_capsules").output
    return model.get_layer("selection"), keras.Model(model.input, parts[:2]).predict(
        Split().batch(np.arange(60), None)["images"], verbose=0
    )


def kind_of_each_object(selection, poses):
    """The kind of images that each object's offsets are the mean of."""
    offsets = np.asarray(selection.common_offsets)[:, None] + np.asarray(selection.offsets)
    distances = [
        [np.abs(offsets[:, i] - poses[kind::3].mean(axis=0)).max() for kind in range(3)] for i in range(3)
    ]
    assert np.min(distances, axis=1).max() < 1e-5
    return np.argmin(distances, axis=1)


def test_each_object_is_the_mean_of_a_cluster(clustered):
    selection, (poses, _) = clustered
    assert sorted(kind_of_each_object(selection, poses)) == [0, 1, 2]


def test_widths_and_presences_are_those_of_the_cluster(clustered):
    selection, (poses, presence) = clustered
    raw = np.asarray(selection.common_widths)[:, None] + np.asarray(selection.widths)
    widths = 0.1 + np.log1p(np.exp(raw))
    shares = 1 / (1 + np.exp(-np.asarray(selection.part_presence)))
    for i, kind in enumerate(kind_of_each_object(selection, poses)):
        expected = np.maximum(poses[kind::3].std(axis=0), 0.12)
        np.testing.assert_allclose(widths[:, i], expected, rtol=1e-3)
        expected = np.clip(presence[kind::3].mean(axis=0), 0.05, 0.95)
        np.testing.assert_allclose(shares[:, 1 + i], expected, rtol=1e-3)


def test_a_run_from_parts_of_fewer_objects_begins_with_clusters(tmp_path):
    def recipe(**changes):
        mapping = {
            "model": {"name": "probabilistic", **TINY, "objects": changes.pop("objects")},
            "data": {"name": "mnist", "validation": 50},
            "train": {"epochs": 1, "batch_size": 25, **changes},
        }
        return parse_recipe("tiny", mapping)

    still = {"learning_rate": 1e-30, "minimum_learning_rate": 0.0}
    train(recipe(objects=1), tmp_path / "parts")
    weights = str(tmp_path / "parts" / "best.safetensors")
    train(recipe(objects=3, start_from=weights, **still), tmp_path / "objects")
    same = str(tmp_path / "objects" / "best.safetensors")
    train(recipe(objects=3, start_from=same, **still), tmp_path / "again")
    parts, objects, again = (
        read_arrays(tmp_path / name / "best.safetensors")[0] for name in ("parts", "objects", "again")
    )
    np.testing.assert_array_equal(objects["renderer/templates"], parts["renderer/templates"])
    spread = objects["selection/offsets"].std(axis=1)
    assert np.all(objects["selection/offsets"].mean(axis=1) == pytest.approx(0, abs=1e-5))
    assert spread.max() > 1e-3
    # Objects that were there already stay as they are.
    np.testing.assert_array_equal(again["selection/offsets"], objects["selection/offsets"])
