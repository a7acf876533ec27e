"""Coefficients and votes over the image stand where their children look."""

import keras
import numpy as np
import pytest
from support import fill

from capszoo import visualize
from capszoo.layers import DenseCapsules, Length, PrimaryCapsules
from capszoo.models import DynamicCapsNet, MatrixCapsNet, SelfRoutingCapsNet
from capszoo.models.architecture import Classifies
from capszoo.models.network import ImageModel
from capszoo.routing import DynamicRouting

SMALL = {"channels": 4, "primary_types": 2, "primary_dim": 4, "class_dim": 6}


@pytest.fixture(scope="module")
def model():
    return fill(DynamicCapsNet(primary_scale=1.0, decoder=False, **SMALL).build((22, 24, 1), 3), seed=1)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).uniform(size=(3, 22, 24, 1)).astype("float32")


def seen_by(model, layer, image, row, column):
    """The middle of the pixels that change a capsule of a grid, by changing each."""
    below = keras.Model(model.input, model.get_layer(layer).output)
    height, width = image.shape[:2]
    pixels = np.repeat(image[None], height * width, axis=0)
    here = np.arange(height * width), *np.divmod(np.arange(height * width), width)
    before = np.asarray(below(image[None]))[:, row, column].reshape(1, -1)
    changed = False
    # Both ways, and far: behind a ReLU a small change may not be seen at all.
    for far in (-10, 10):
        altered = pixels.copy()
        altered[here] += far
        poses = np.asarray(below(altered))[:, row, column].reshape(height * width, -1)
        changed |= np.abs(poses - before).max(axis=1).reshape(height, width) > 1e-5
    return tuple(np.mean(np.flatnonzero(changed.any(axis=axis))[[0, -1]]) for axis in (1, 0))


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_children_stand_at_the_middle_of_what_they_see(padding, images):
    net = DynamicCapsNet(primary_scale=1.0, decoder=False, padding=padding, **SMALL)
    model = fill(net.build((22, 24, 1), 3), seed=1)
    rows, columns = visualize.child_centres(model)
    grid = model.get_layer("primary_capsules").output.shape[1:3]
    assert (len(rows), len(columns)) == grid
    middle = (grid[0] // 2, grid[1] // 2)
    expected = seen_by(model, "primary_capsules", images[0], *middle)
    np.testing.assert_allclose((rows[middle[0]], columns[middle[1]]), expected, atol=0.51)


def test_centres_follow_convolutional_capsules():
    model = MatrixCapsNet(channels=4, primary_types=2, conv1_types=3, conv2_types=2).build((22, 22, 1), 3)
    # Windows 5/2, 3/2, 3/1: the first is centred at 2 + 2 * 1 + 4 * 1, the next 4 pixels on.
    for centres in visualize.child_centres(model):
        np.testing.assert_allclose(centres, [8, 12])
    with pytest.raises(ValueError, match="each see a whole grid"):
        visualize.coefficient_maps(model, np.zeros((1, 22, 22, 1)), "conv_capsules1")


def test_what_is_active_is_shared_out_among_the_parents(model, images):
    maps = visualize.coefficient_maps(model, images)
    poses = keras.Model(model.input, model.get_layer("primary_capsules").output)(images)
    np.testing.assert_allclose(
        maps.sum(axis=-1), np.linalg.norm(poses, axis=-1).sum(axis=-1), rtol=1e-5
    )  # each child's coefficients sum to one over its parents
    assert np.ptp(maps, axis=-1).max() > 1e-3


def test_distances_over_the_image_are_the_mean_of_those_of_its_votes(model, images):
    maps = visualize.vote_distance_maps(model, images)
    distances, shares = (part[-1] for part in visualize.vote_distances(model, images))
    types = SMALL["primary_types"]
    first = slice(0, types)  # the types at the first position
    expected = (shares * distances)[:, first].sum(axis=1) / shares[:, first].sum(axis=1)
    np.testing.assert_allclose(maps[:, 0, 0], expected, rtol=1e-4)


def test_maps_lie_where_the_children_look(model, images):
    maps, centres = visualize.coefficient_maps(model, images[:1])[0], visualize.child_centres(model)
    figure = visualize.draw_over_image(images[0], maps, centres, "share", list("abc"))
    picture, *parents, colours = figure.axes
    assert [axes.get_title() for axes in (picture, *parents)] == ["image", "a", "b", "c"]
    assert colours.get_ylabel() == "share"
    over = parents[1].images[1]
    np.testing.assert_array_equal(over.get_array(), maps[..., 1])
    left, right, bottom, top = over.get_extent()
    rows, columns = centres
    step = rows[1] - rows[0]
    np.testing.assert_allclose((top, bottom), (rows[0] - step / 2, rows[-1] + step / 2))
    np.testing.assert_allclose((left, right), (columns[0] - step / 2, columns[-1] + step / 2))
    with pytest.raises(ValueError, match=r"maps must be of \d+ rows"):
        visualize.draw_over_image(images[0], maps[1:], centres, "share")


def test_parents_without_poses_have_coefficients_and_no_distances_of_votes():
    net = SelfRoutingCapsNet(channels=(4,), strides=(2,), primary_types=2, primary_dim=3)
    model = net.build((8, 8, 1), 3)
    images = np.random.default_rng(0).random((2, 8, 8, 1), dtype="float32")
    names = [drawing.name for drawing in visualize.overview(model, images)]
    assert "coefficients_over_image_scores" in names
    assert not [name for name in names if name.startswith("votes")]
    with pytest.raises(ValueError, match=r"parents have poses is needed\. Received: 'scores'"):
        visualize.vote_distances(model, images)


def padded(images):
    return keras.layers.Conv2D(8, 5)(keras.layers.ZeroPadding2D(3)(images))


def enlarged(images):
    return keras.layers.Conv2D(8, 5, 2)(keras.layers.UpSampling2D(2)(images))


def backbone(images):
    inputs = keras.Input(images.shape[1:])
    return keras.Model(inputs, keras.layers.Conv2D(8, 3, 2)(inputs))(images)


class Mine(Classifies):
    """A network of somebody else's."""

    section_name = "mine"

    def __init__(self, below):
        self.below = below

    def build(self, image_shape):
        inputs = keras.Input(image_shape, name="images")
        children = self.below(inputs)
        if len(children.shape) == 4:
            children = PrimaryCapsules(2, 4, 5, name="primary_capsules")(children)
        poses = DenseCapsules(3, 6, DynamicRouting(2), name="class_capsules")(children)
        model = ImageModel(inputs, {"poses": poses, "scores": Length(name="scores")(poses)})
        model.architecture = self
        return fill(model, seed=1)

    def objective(self, model, labels_per_image=1):
        raise NotImplementedError


def test_children_behind_a_dilated_convolution_stand_where_they_look(images):
    model = Mine(keras.layers.Conv2D(4, 3, dilation_rate=2, name="conv")).build((22, 24, 1))
    rows, columns = visualize.child_centres(model)
    expected = seen_by(model, "primary_capsules", images[0], 3, 4)
    np.testing.assert_allclose((rows[3], columns[4]), expected, atol=0.51)


@pytest.mark.parametrize(
    ("below", "drawn"),
    [
        (padded, {"activations_primary_capsules", "coefficients_class_capsules", "votes_class_capsules"}),
        (enlarged, {"activations_primary_capsules", "coefficients_class_capsules", "votes_class_capsules"}),
        (backbone, {"activations_primary_capsules", "coefficients_class_capsules", "votes_class_capsules"}),
        (keras.layers.Reshape((-1, 8)), {"coefficients_class_capsules", "votes_class_capsules"}),
    ],
)
def test_of_children_that_look_nobody_knows_where_the_rest_is_drawn(below, drawn, images):
    model = Mine(below).build((22, 24, 1))
    with pytest.raises(ValueError, match=r"is not known|a layer with children on a grid is needed"):
        visualize.child_centres(model)
    assert {drawing.name for drawing in visualize.overview(model, images)} == drawn
