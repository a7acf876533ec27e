"""Pictures of specialisation: support by rank, frequencies of ranks, what each capsule adds."""

import keras
import numpy as np
import pytest

from capszoo import visualize
from capszoo.models import DynamicCapsNet, SparseCapsNet, UnmaskedCapsNet

SMALL = {"channels": 4, "primary_types": 2, "primary_dim": 4}
LATENT = {"latent_capsules": 5, "latent_dim": 6}


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).uniform(size=(6, 20, 20, 1)).astype("float32")


def built(architecture, classes=None):
    keras.utils.set_random_seed(0)
    return architecture.build((20, 20, 1), classes)


@pytest.fixture(scope="module")
def model():
    made = built(SparseCapsNet(primary_scale=1.0, **SMALL, **LATENT))
    made.get_layer("sparse_mask").boosts.assign([1.0, 1.0, 1.3, 1.0, 1.0])
    return made


@pytest.fixture(scope="module")
def outputs(model, images):
    return model.predict(images, verbose=0)


@pytest.fixture(scope="module")
def alone_and_without(model, images):
    return visualize.capsule_reconstructions(model, images)


def test_ranked_support_is_the_mean_by_rank_as_a_share_of_the_first(model, images, outputs):
    ranked = -np.sort(-outputs["scores"], axis=-1)
    expected = ranked.mean(axis=0) / ranked[:, 0].mean()
    np.testing.assert_allclose(visualize.ranked_support(model, images), expected, rtol=1e-5)
    assert (np.diff(expected) < 0).all()


def test_ranked_support_is_by_the_rule_of_the_layer(images):
    model = built(SparseCapsNet(primary_scale=1.0, support="code", **SMALL, **LATENT))
    ranked = -np.sort(-model.predict(images, verbose=0)["scores"], axis=-1)
    expected = ranked.mean(axis=0) / ranked[:, 0].mean()
    np.testing.assert_allclose(visualize.ranked_support(model, images), expected, rtol=1e-5)


def test_class_capsules_have_a_support_too(images):
    model = built(DynamicCapsNet(class_dim=6, decoder=False, **SMALL), 3)
    history = visualize.coefficients(model, images)[-1]  # [B, 2 * 2 * 2, 3]
    support = history.reshape(6, 4, 2, 3).max(axis=2).mean(axis=1)
    ranked = np.sort(support, axis=-1)[:, ::-1].mean(axis=0)
    given = visualize.ranked_support(model, images)
    np.testing.assert_allclose(given, ranked / ranked[0], rtol=1e-5)


def test_rank_frequencies_count_boosted_ranks(model, images, outputs):
    frequencies = visualize.rank_frequencies(model, images)
    boosted = outputs["scores"] * np.float32([1, 1, 1.3, 1, 1])
    expected = np.zeros((5, 5))
    for row in np.argsort(-boosted, axis=-1):
        for rank, capsule in enumerate(row):
            expected[capsule, rank] += 1 / 6
    np.testing.assert_allclose(frequencies, expected)
    assert frequencies[2, 0] == 1  # the boosted one


def test_a_dense_network_has_ranks_too(images):
    frequencies = visualize.rank_frequencies(built(UnmaskedCapsNet(**SMALL, **LATENT)), images)
    np.testing.assert_allclose([frequencies.sum(axis=0), frequencies.sum(axis=1)], 1)


def test_a_capsule_alone_and_all_but_it_are_decoded_from_masked_poses(model, outputs, alone_and_without):
    masked = outputs["poses"] * outputs["presence"][..., None]
    for decoded, keeps in zip(alone_and_without, (np.eye(5), 1 - np.eye(5)), strict=True):
        assert decoded.shape == (6, 5, 20, 20, 1)
        poses = (masked[:, None] * keeps[None, :, :, None]).reshape(6, 5, 30)
        np.testing.assert_allclose(decoded, model.get_layer("decoder")(poses), atol=1e-5)


def test_leaving_a_silent_capsule_out_changes_nothing(outputs, alone_and_without):
    image, capsule = np.argwhere(outputs["presence"] == 0)[0]
    without = alone_and_without[1][image, capsule]
    np.testing.assert_allclose(without, outputs["reconstruction"][image], atol=1e-6)


def test_figures_are_drawn(model, images, outputs, alone_and_without):
    support = visualize.draw_ranked_support({"sparse": visualize.ranked_support(model, images)})
    assert len(support.axes[0].lines) == 1
    frequencies = visualize.draw_rank_frequencies(visualize.rank_frequencies(model, images), (0.04, 0.1))
    assert len(frequencies.axes[0].lines) == 5
    alone, without = alone_and_without
    figure = visualize.draw_capsule_reconstructions(
        images[0], outputs["reconstruction"][0], alone[0], without[0]
    )
    (picture,) = figure.axes[0].images
    sheet = np.asarray(picture.get_array())
    assert sheet.shape == (3 * 20, 6 * 20)
    np.testing.assert_allclose(sheet[:20, :20], images[0, ..., 0])
    np.testing.assert_allclose(sheet[20:40, 40:60], without[0, 1, ..., 0])


def test_reconstructions_of_another_shape_are_not_drawn(images, alone_and_without):
    alone, without = alone_and_without
    with pytest.raises(ValueError, match="must have the shape of the image"):
        visualize.draw_capsule_reconstructions(images[0], images[0], alone[0], without[0, :3])


def test_the_overview_draws_latent_capsules(model, images):
    names = [drawing.name for drawing in visualize.overview(model, images[:2], ["a", "b"])]
    assert {"capsule_reconstructions", "perturbations", "coefficients_latent_capsules"} <= set(names)


def test_a_network_with_labels_has_no_mask(images):
    model = built(DynamicCapsNet(class_dim=6, **SMALL), 3)
    for function in (visualize.rank_frequencies, visualize.capsule_reconstructions):
        with pytest.raises(ValueError, match="needs an architecture that masks its capsules by their ranks"):
            function(model, images)
