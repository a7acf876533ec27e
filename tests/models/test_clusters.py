"""Objects that begin as clusters of the arrangements of parts."""

import keras
import numpy as np
import pytest
from support import fill
from tiny import PROBABILISTIC as TINY

from capszoo.models import ProbabilisticCapsNet
from capszoo.models.probabilistic import clusters
from capszoo.models.probabilistic.clusters import clustered, objects_from_clusters, teach
from capszoo.training.run import train
from capszoo.training.weight_files import read_arrays, save_weights
from capszoo.zoo.recipes import parse_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")


def generated(images=300, noise=0.01):
    """Poses and presences of four parts of three kinds of objects, each object in its own pose; and the kinds."""
    rng = np.random.default_rng(0)
    offsets = np.eye(2, 3) + rng.normal(scale=0.6, size=(3, 4, 2, 3))
    kinds = np.arange(images) % 3
    maps = np.eye(2, 3) + rng.normal(scale=0.25, size=(images, 1, 2, 3))
    poses = maps[..., :2] @ offsets[kinds]
    poses[..., 2] += maps[..., 2]
    return poses + rng.normal(scale=noise, size=poses.shape), rng.uniform(0.6, 1.0, (images, 4)), kinds


@pytest.fixture(scope="module")
def found():
    poses, presence, _ = generated()
    return clustered(poses, presence, 3, least_width=0.02)


def test_the_density_of_an_image_in_a_cluster_is_that_of_the_formula(found):
    poses, presence, _ = generated()
    maps = np.random.default_rng(1).normal(scale=0.3, size=(len(poses), 3, 2, 3))
    densities = found.log_densities(poses, presence, maps)
    square = np.concatenate([np.eye(2, 3) + maps[7, 2], [[0, 0, 1]]])
    expected = np.log(found.weights[2]) - 0.5 * (maps[7, 2] ** 2).sum()
    for part in range(4):
        mean = (square @ np.concatenate([found.offsets[2, part], [[0, 0, 1]]]))[:2]
        width, share, on = found.widths[2, part], found.shares[2, part], presence[7, part]
        error = (poses[7, part] - mean) / width
        expected += on * (np.log(share) - np.log(width).sum() - 0.5 * (error**2).sum())
        expected += (1 - on) * np.log(1 - share)
    assert densities[7, 2] == pytest.approx(expected, rel=1e-9)


def test_the_likeliest_of_all_starts_is_taken_and_refined_on_all_images(monkeypatch):
    # More clusters than kinds: what is found depends on the start.
    poses, presence, _ = generated(noise=0.2)

    def likelihoods(starts):
        monkeypatch.setattr(clusters, "STARTS", starts)
        return clustered(poses, presence, 6, least_width=0.02).log_likelihood(poses, presence)

    monkeypatch.setattr(clusters, "START_IMAGES", 60)
    ascending = [likelihoods(starts) for starts in (1, 16)]
    assert ascending[0] < ascending[1] - 0.1


def test_no_pose_near_the_one_found_is_more_likely(found):
    poses, presence, _ = generated()
    best = found.object_poses(poses, presence)
    density = found.log_densities(poses, presence, best)
    for row in range(2):
        for column in range(3):
            for change in (-1e-3, 1e-3):
                moved = best.copy()
                moved[..., row, column] += change
                assert np.all(found.log_densities(poses, presence, moved) < density)


def test_kinds_are_found_whatever_the_pose(found):
    poses, presence, kinds = generated()
    winners = found.log_densities(poses, presence, found.object_poses(poses, presence)).argmax(axis=1)
    pairs = set(zip(kinds.tolist(), winners.tolist(), strict=True))
    assert len(pairs) == len({kind for kind, _ in pairs}) == len({winner for _, winner in pairs}) == 3
    # The noise that the data were made with is below the least width.
    assert found.widths.max() < 0.03


@pytest.mark.slow
def test_the_network_that_infers_objects_learns_the_clusters(found):
    keras.utils.set_random_seed(0)
    poses, presence, _ = generated()
    model = ProbabilisticCapsNet(**{**TINY, "units": 64, "encoding": 32}).build((10, 12, 1))
    teach(model, poses, presence, found, epochs=60)
    inputs = [model.get_layer(name).input for name in ("part_matrices", "part_presences")]
    outputs = [model.get_layer(name).output for name in ("object_logits", "object_matrices1")]
    logits, learnt = keras.Model(inputs, outputs).predict([poses, presence], verbose=0)
    expected = found.object_poses(poses, presence)
    winners = found.log_densities(poses, presence, expected).argmax(axis=1)
    assert np.mean(logits[..., 0].argmax(axis=1) == winners) > 0.95
    rows = np.arange(len(poses))
    errors = learnt[rows, winners] - expected[rows, winners]
    assert np.mean(errors**2) < 0.8 * np.mean(expected[rows, winners] ** 2)


class Split:
    """Images of three kinds in turn, with a little noise."""

    kinds = np.random.default_rng(0).random((3, 10, 12, 1), dtype="float32")

    def __len__(self):
        return 60

    def batch(self, indices, rng):
        assert rng is None
        noise = np.random.default_rng(1).random((60, 10, 12, 1), dtype="float32")
        return {"images": (self.kinds[np.arange(60) % 3] + 0.05 * noise)[indices]}


@pytest.mark.slow
def test_objects_are_the_clusters_of_the_parts_of_images():
    keras.utils.set_random_seed(0)
    # The parts of a random network tell little apart.
    model = fill(ProbabilisticCapsNet(**TINY, least_deviation=1e-3).build((10, 12, 1)), scale=0.3)
    before = np.array(model.get_layer("object_logits").kernel)
    objects_from_clusters(model, Split())
    assert np.any(model.get_layer("object_logits").kernel != before), "the inference network was not taught"
    parts = keras.Model(model.input, model.get_layer("part_capsules").output[:2])
    images = Split().batch(np.arange(60), None)["images"]
    poses, presence = (part.astype("float64") for part in parts.predict(images, verbose=0))
    expected = clustered(poses, presence, 3, least_width=0.021)
    winners = expected.log_densities(poses, presence, expected.object_poses(poses, presence)).argmax(axis=1)
    assert sorted(winners[:3]) == [0, 1, 2]
    np.testing.assert_array_equal(winners, np.tile(winners[:3], 20))
    selection = model.get_layer("selection")
    offsets = np.asarray(selection.common_offsets)[:, None] + np.asarray(selection.offsets)
    shares = 1 / (1 + np.exp(-np.asarray(selection.part_presence)[:, 1:]))
    np.testing.assert_allclose(np.swapaxes(offsets, 0, 1), expected.offsets, atol=1e-4)
    np.testing.assert_allclose(np.swapaxes(selection.deviations(), 0, 1), expected.widths, rtol=1e-3)
    np.testing.assert_allclose(shares.T, expected.shares, rtol=1e-3)


@pytest.mark.slow
def test_a_run_from_parts_of_fewer_objects_begins_with_clusters(tmp_path):
    recipe = {
        "model": {"name": "probabilistic", **TINY},
        "data": {"name": "mnist", "validation": 50},
        "train": {
            "epochs": 1,
            "batch_size": 25,
            "start_from": str(tmp_path / "parts.safetensors"),
            "learning_rate": 1e-30,
            "minimum_learning_rate": 0.0,
        },
    }
    parts = ProbabilisticCapsNet(**{**TINY, "objects": 1}).build((28, 28, 1))
    save_weights(parts, tmp_path / "parts.safetensors")
    train(parse_recipe("tiny", recipe), tmp_path / "run")
    learnt = read_arrays(tmp_path / "run" / "best.safetensors")[0]
    np.testing.assert_array_equal(learnt["renderer/templates"], parts.get_layer("renderer").templates)
    # Those of random objects have a mean of their own.
    assert np.all(learnt["selection/offsets"].mean(axis=1) == pytest.approx(0, abs=1e-5))


def test_objects_that_were_there_already_stay_as_they_are():
    net = ProbabilisticCapsNet(**TINY)
    model = net.build((10, 12, 1))
    before = np.array(model.get_layer("selection").offsets)
    net.objective(model).begin(Split(), ["selection/affinities"])
    np.testing.assert_array_equal(model.get_layer("selection").offsets, before)


def test_parts_that_have_learnt_nothing_have_no_clusters():
    net = ProbabilisticCapsNet(**TINY)
    model = net.build((10, 12, 1))
    before = np.array(model.get_layer("selection").offsets)
    net.objective(model).begin(Split(), [weight.path for weight in model.weights])
    np.testing.assert_array_equal(model.get_layer("selection").offsets, before)
