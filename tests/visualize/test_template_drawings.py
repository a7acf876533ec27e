"""What a probabilistic capsule network has learnt, drawn."""

import io

import keras
import numpy as np
import pytest
from tiny import PROBABILISTIC as TINY

from capszoo.models import ConvNet, ProbabilisticCapsNet
from capszoo.visualize import overview, templates

IMAGES = np.random.default_rng(0).random((5, 12, 12, 1), dtype="float32")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return ProbabilisticCapsNet(**TINY).build((12, 12, 1))


def test_arrangements_are_the_reconstructions_in_colours(model):
    arranged = templates.arrangements(model, IMAGES)
    assert arranged.shape == (5, 12, 12, 3)
    decoded = model.predict(IMAGES, verbose=0)["reconstruction"]
    # The brightest channel of a hue has the brightness of its ink, where one part covers the others.
    assert (arranged.max(axis=-1) <= decoded[..., 0] + 1e-5).all()
    assert (arranged.sum(axis=-1) > decoded[..., 0] - 1e-5).all()


def test_an_object_that_makes_no_part_looks_black(model):
    logits = model.get_layer("selection").part_presence
    before = np.array(logits)
    logits.assign(np.where(np.arange(4) == 2, -100, before))
    looks = templates.objects(model)
    logits.assign(before)
    assert looks.shape == (3, 12, 12, 3)
    assert looks[1].max() < 1e-6 < looks[0].max()


@pytest.fixture
def changed(model):
    """`changed(name, values)`: the weight of the selection has these values in this test."""
    selection, before = model.get_layer("selection"), {}

    def change(name, values):
        weight = getattr(selection, name)
        before.setdefault(name, np.array(weight))
        weight.assign(np.broadcast_to(values, weight.shape))

    yield change
    for name, values in before.items():
        getattr(selection, name).assign(values)


def test_an_object_is_its_parts_where_it_expects_them_each_in_its_hue(model, changed):
    selection, renderer = model.get_layer("selection"), model.get_layer("renderer")
    changed("offsets", 0.3 * np.random.default_rng(1).normal(size=selection.offsets.shape).astype("float32"))
    for part in range(4):
        changed("part_presence", np.where(np.arange(4) == part, 100, -100)[:, None])
        looks = templates.objects(model)
        for number in range(3):
            pose = np.zeros((1, 4, 2, 3), "float32")
            pose[0, part] = np.asarray(selection.common_offsets[part] + selection.offsets[part, number])
            alone = renderer(pose, np.eye(4, dtype="float32")[part][None])[0, ..., 0]
            # The brightest channel of a hue is one, the darkest a fifth.
            np.testing.assert_allclose(looks[number].max(axis=-1), alone, atol=1e-5)
            np.testing.assert_allclose(looks[number].min(axis=-1), 0.2 * np.asarray(alone), atol=1e-5)


def test_a_part_that_prefers_another_object_is_paler(model, changed):
    changed("part_presence", np.where(np.arange(4) == 0, 100, -100)[:, None])
    changed("affinities", np.where(np.arange(3) == 1, 100, np.log(1 / 3)))
    # A part is as opaque as it is present; of the sigmoids a quarter and one, one is the greatest.
    looks = templates.objects(model)
    changed("affinities", 100)
    np.testing.assert_allclose(looks[[0, 2]], templates.objects(model)[[0, 2]] / 4, atol=1e-5)
    np.testing.assert_allclose(looks[1], templates.objects(model)[1], atol=1e-5)


def test_samples_move_their_objects_and_their_parts(model, changed):
    changed("part_presence", 100)
    still, moved = (templates.samples(model, 8, deviation=deviation) for deviation in (0.0, 0.3))
    assert np.abs(still - moved).max() > 0.01
    # More pictures than objects: parts of an object that stays where it is are not always in one place.
    assert len(np.unique(still.reshape(8, -1), axis=0)) == 8 > 3


def test_samples_follow_their_seed(model):
    first, again, other = (templates.samples(model, 6, seed=seed) for seed in (1, 1, 2))
    assert first.shape == (6, 12, 12, 1)
    assert first.min() >= 0
    assert first.max() <= 1
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


def test_templates_are_colour_times_opacity(model):
    renderer = model.get_layer("renderer")
    expected = keras.ops.sigmoid(renderer.templates) * keras.ops.sigmoid(renderer.alphas)
    np.testing.assert_allclose(templates.templates(model), expected, rtol=1e-6)


def test_figures_are_drawn(model):
    arranged = templates.arrangements(model, IMAGES)
    for figure in (
        templates.draw_templates(templates.templates(model)),
        templates.draw_arrangements(IMAGES, arranged),
        templates.draw_pictures(templates.objects(model)),
        templates.draw_pictures(templates.samples(model, 9)),
        templates.draw_free_form(IMAGES, IMAGES, IMAGES),
    ):
        file = io.BytesIO()
        figure.savefig(file)
        assert file.tell() > 1000


@pytest.mark.parametrize("draw", [templates.templates, templates.objects])
def test_other_models_are_refused(draw):
    with pytest.raises(ValueError, match="needs an architecture that composes images of templates"):
        draw(ConvNet(channels=(2, 2), hidden=3).build((12, 12, 1), 2))


def test_the_overview_draws_templates_and_what_objects_make_of_them(model):
    drawn = {drawing.name: drawing.figure for drawing in overview(model, IMAGES)}
    assert list(drawn) == ["arrangements", "templates", "objects", "samples", "reconstructions"]
