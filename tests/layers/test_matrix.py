"""Capsules with poses and activations: what a vote is, which child it comes from, and where its coordinates go."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles import em_routing as oracle
from oracles.dynamic_routing import dynamic_routing as oracle_of_dynamic_routing
from routed import DENSE_MASS_FLOOR, MASS_FLOOR, VARIANCE_FLOOR
from support import arrays, dtype_policy, fill, traced

from capszoo.layers import ConvCapsules, MatrixPrimaryCapsules, SharedClassCapsules
from capszoo.layers.coordinates import receptive_field_centres
from capszoo.routing import DynamicRouting, EMRouting

CLOSE = {"rtol": 1e-4, "atol": 2e-5}
POSES = {"matrix": (4, 4), "vector": (16,)}
every_pose = pytest.mark.parametrize("pose", POSES)


def capsules(grid=(5, 6), types=3, pose="matrix", images=2):
    """A pair of poses and activations."""
    rng = np.random.default_rng(0)
    poses = rng.normal(size=(images, *grid, types, *POSES[pose])).astype("float32")
    return poses, rng.uniform(0.05, 1, size=(images, *grid, types)).astype("float32")


def conv(strides=1, pose="matrix", **options):
    return ConvCapsules(2, 3, strides, EMRouting(**options), pose=pose)


def classes(pose="matrix", coordinates=None, **options):
    return SharedClassCapsules(4, EMRouting(), coordinates, pose=pose, **options)


def known(layer, children):
    """The layer with known weights."""
    layer(children)
    return fill(layer)


def vote(pose, kernel):
    """A child's vote by a product of matrices, listed row by row; kernel `[width, width]`."""
    return (pose @ kernel).reshape(-1)


# Votes


def conv_votes(children, kernel, strides):
    """Votes `[B, H', W', K, K, types, O, 16]`, one product at a time."""
    size, parents = kernel.shape[0], kernel.shape[4]
    grid = [(side - size) // strides + 1 for side in children.shape[1:3]]
    votes = np.zeros((len(children), *grid, size, size, children.shape[3], parents, 16))
    for b, h, w, ky, kx, i, o in np.ndindex(*votes.shape[:-1]):
        pose = children[b, strides * h + ky, strides * w + kx, i]
        votes[b, h, w, ky, kx, i, o] = vote(pose, kernel[ky, kx, i, :, o])
    return votes


@every_pose
@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("variant", ["paper", "official"])
def test_convolutional_capsules_route_the_products_of_poses_and_matrices(strides, pose, variant):
    poses, activations = capsules(pose=pose)
    layer = known(conv(strides, pose, variant=variant), (poses, activations))
    (parents, active), history = layer((poses, activations), return_history=True)
    kernel, beta_u, beta_a = arrays(layer.weights)
    expected = oracle.em_routing(
        conv_votes(poses, kernel, strides),
        activations,
        beta_u,
        beta_a,
        stride=strides,
        variant=variant,
        normalise="positions" if variant == "official" else None,
        variance_floor=VARIANCE_FLOOR,
        mass_floor=MASS_FLOOR,
    )
    np.testing.assert_allclose(parents, expected["poses"].reshape(parents.shape), **CLOSE)
    np.testing.assert_allclose(active, expected["activations"], **CLOSE)
    for coefficients, other in zip(history, expected["coefficients"], strict=True):
        np.testing.assert_allclose(coefficients, other.reshape(coefficients.shape), **CLOSE)


def class_votes(children, kernel):
    """Votes `[B, H, W, types, O, 16]`, one product at a time."""
    votes = np.zeros((*children.shape[:4], kernel.shape[2], 16))
    for b, y, x, i, o in np.ndindex(*votes.shape[:-1]):
        votes[b, y, x, i, o] = vote(children[b, y, x, i], kernel[i, :, o])
    return votes


def routed_to_classes(votes, activations, betas):
    images, parents = len(votes), votes.shape[-2]
    return oracle.em_routing_dense(
        votes.reshape(images, -1, parents, 16),
        activations.reshape(images, -1),
        *betas,
        variance_floor=VARIANCE_FLOOR,
        mass_floor=DENSE_MASS_FLOOR,
    )


@every_pose
def test_class_capsules_share_their_matrices_between_positions(pose):
    poses, activations = capsules(pose=pose)
    layer = known(classes(pose), (poses, activations))
    (parents, active), history = layer((poses, activations), return_history=True)
    kernel, *betas = arrays(layer.weights)
    expected = routed_to_classes(class_votes(poses, kernel), activations, betas)
    np.testing.assert_allclose(parents, expected["poses"].reshape(parents.shape), **CLOSE)
    np.testing.assert_allclose(active, expected["activations"], **CLOSE)
    np.testing.assert_allclose(history, expected["coefficients"], **CLOSE)


# Coordinates

ROWS, COLUMNS = (-0.3, -0.1, 0.1, 0.2, 0.7), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


@pytest.mark.parametrize("entries", [(3, 3), (3, 16), (-1, 3), (3, 7, 8)])
def test_coordinates_that_have_no_two_entries_of_their_own_are_refused(entries):
    with pytest.raises(ValueError, match="entries must be two different ones of 16"):
        classes(coordinates=(ROWS, COLUMNS), entries=entries)


@every_pose
@pytest.mark.parametrize("entries", [(3, 7), (0, 1), (1, 0)])
def test_rows_and_columns_are_added_to_two_entries_of_every_vote(entries, pose):
    poses, activations = capsules(pose=pose)
    layer = known(classes(pose, (ROWS, COLUMNS), entries=entries), (poses, activations))
    parents, active = layer((poses, activations))
    kernel, *betas = arrays(layer.weights)
    votes = class_votes(poses, kernel)
    votes[..., entries[0]] += np.array(ROWS)[:, None, None, None]
    votes[..., entries[1]] += np.array(COLUMNS)[:, None, None]
    expected = routed_to_classes(votes, activations, betas)
    np.testing.assert_allclose(parents, expected["poses"].reshape(parents.shape), **CLOSE)
    np.testing.assert_allclose(active, expected["activations"], **CLOSE)


def test_by_default_coordinates_go_to_the_top_of_the_right_hand_column():
    poses, activations = capsules(images=1)
    layer = known(classes(coordinates=(ROWS, COLUMNS)), (poses, activations))
    # Poses of zero vote for nothing but where they are, and one active child decides alone.
    alone = np.zeros_like(activations)
    alone[0, 3, 4, 1] = 1
    parents, _ = layer((0 * poses, alone))
    expected = np.zeros((4, 4))
    expected[0, 3], expected[1, 3] = ROWS[3], COLUMNS[4]
    np.testing.assert_allclose(parents[0], np.broadcast_to(expected, (4, 4, 4)), rtol=1e-4, atol=1e-6)


def test_coordinates_of_another_grid_are_refused():
    layer = classes(coordinates=(COLUMNS, ROWS))
    with pytest.raises(ValueError, match=r"5 rows and 6 columns are needed\. Received: \[6, 5\]"):
        layer(capsules())


def test_coordinates_that_are_arrays_are_saved_like_any_other():
    numbers = classes(coordinates=(np.asarray(ROWS), np.asarray(COLUMNS)), entries=np.array([3, 7]))
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(numbers)))
    again = keras.saving.deserialize_keras_object(config, safe_mode=True)
    assert again.coordinates == numbers.coordinates == (tuple(ROWS), tuple(COLUMNS))
    assert again(capsules())[0].shape == numbers(capsules())[0].shape


def test_receptive_fields_lie_where_their_windows_put_them():
    # 32 pixels: 14 windows of 5 every 2; 6 of 3 every 2; 4 of 3. Centres at pixels 8, 12, 16, 20 of 0 .. 31.
    centres = receptive_field_centres(32, [(5, 2), (1, 1), (3, 2), (3, 1)])
    assert centres == (-7.5, -3.5, 0.5, 4.5)
    assert receptive_field_centres(7, []) == (-3, -2, -1, 0, 1, 2, 3)
    assert receptive_field_centres(5, [(3, 1)]) == (-1, 0, 1)
    with pytest.raises(ValueError, match="an image of 4 pixels is too small"):
        receptive_field_centres(4, [(5, 1)])


# Primary capsules


@every_pose
def test_primary_capsules_are_linear_in_the_features_and_their_activations_a_shifted_logistic(pose):
    features = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("float32")
    layer = known(MatrixPrimaryCapsules(3, pose), features)
    poses, activations = layer(features)
    of_poses, of_activations = arrays(layer.weights)
    expected = (features @ of_poses).reshape(2, 3, 4, 3, *POSES[pose])
    np.testing.assert_allclose(poses, expected, **CLOSE)
    np.testing.assert_allclose(activations, 1 / (1 + np.exp(1 - features @ of_activations)), **CLOSE)


def test_initial_weights_are_those_of_the_authors():
    keras.utils.set_random_seed(0)
    primary = MatrixPrimaryCapsules(32)
    primary.build((None, 4, 4, 32))
    layer, last = conv(), SharedClassCapsules(5, EMRouting(beta_u=2.0, beta_a=1.0))
    children = [(None, 5, 6, 32, 4, 4), (None, 5, 6, 32)]
    layer.build(children)
    last.build(children)
    # A normal distribution cut at two deviations keeps 0.88 of its own.
    for weights, deviation in ((primary.pose_kernel, 0.5), (layer.kernel, 0.3), (last.kernel, 0.01)):
        np.testing.assert_allclose(np.std(weights), 0.88 * deviation, rtol=0.05)
        assert np.max(np.abs(weights)) <= 2.01 * deviation
    np.testing.assert_array_equal(layer.routing.beta_a, [0.5, 0.5])
    np.testing.assert_array_equal(last.routing.beta_u, np.full(5, 2.0))


# Layers as such


@pytest.mark.parametrize("kind", [conv, classes])
@pytest.mark.parametrize("count", [None, 2])
def test_children_may_be_variables_as_where_inputs_are_optimised(kind, count):
    children = capsules()
    layer = known(kind(), children)
    variables = tuple(map(tf.Variable, children))
    with tf.GradientTape() as tape:
        parents, _ = layer(variables, num_iterations=count, return_history=True)
        loss = tf.reduce_sum(parents[1])
    for array, other in zip(arrays(parents), arrays(layer(children, num_iterations=count)), strict=True):
        np.testing.assert_allclose(array, other, **CLOSE)
    assert all(gradient is not None for gradient in tape.gradient(loss, variables))


def test_a_childs_coefficients_sum_to_one_over_the_parents_of_all_positions():
    children = capsules((7, 7), images=1)
    _, history = known(conv(2), children)(children, return_history=True)
    taps = np.asarray(history)[-1, 0].reshape(3, 3, 3, 3, 3, 2).sum(axis=-1)
    sums = np.zeros((7, 7, 3))
    for h, w, ky, kx in np.ndindex(3, 3, 3, 3):
        sums[2 * h + ky, 2 * w + kx] += taps[h, w, ky, kx]
    np.testing.assert_allclose(sums, 1, rtol=1e-5)


@pytest.mark.parametrize("kind", [conv, classes])
def test_the_number_of_iterations_can_be_given_at_the_call(kind):
    children = capsules()
    layer = known(kind(), children)
    twice, history = layer(children, num_iterations=2, return_history=True)
    assert len(history) == 2
    served = tf.function(lambda count: layer(children, num_iterations=count), autograph=False)
    for array, other in zip(arrays(served(tf.constant(2))), arrays(twice), strict=True):
        np.testing.assert_allclose(array, other, **CLOSE)
    assert np.abs(twice[1] - layer(children)[1]).max() > 1e-6


def transposed(layer, children, **options):
    """The shapes of what a graph of `layer` transposes, outside the functions that it calls."""
    served = tf.function(lambda *children: layer(children, **options), autograph=False)
    operations = served.get_concrete_function(*children).graph.get_operations()
    return [operation.inputs[0].shape for operation in operations if operation.type == "Transpose"]


@every_pose
def test_any_routing_of_three_hooks_takes_the_votes(pose):
    children = capsules(pose=pose)
    for layer, grid in (
        (ConvCapsules(2, 3, 2, DynamicRouting(), pose=pose), (2, 2)),
        (SharedClassCapsules(4, DynamicRouting(), pose=pose), ()),
    ):
        known(layer, children)
        (poses, activations), history = layer(children, return_history=True)
        votes = np.asarray(layer.votes_of(children))
        expected = oracle_of_dynamic_routing(
            votes.reshape(-1, *votes.shape[-3:]), 3, np.asarray(layer.routing.bias)
        )
        assert poses.shape == (2, *grid, layer.types, *POSES[pose])
        assert history.shape == (3, 2, *grid, *votes.shape[-3:-1])
        # A matrix is listed column by column inside.
        listed = np.swapaxes(poses, -1, -2) if pose == "matrix" else np.asarray(poses)
        np.testing.assert_allclose(listed.reshape(expected["poses"].shape), expected["poses"], **CLOSE)
        lengths = np.linalg.norm(expected["poses"], axis=-1)
        np.testing.assert_allclose(np.reshape(activations, lengths.shape), lengths, **CLOSE)


@pytest.mark.parametrize("kind", [conv, classes])
def test_votes_with_positions_last_are_never_transposed(kind):
    children = capsules((9, 9))
    layer = known(kind(), children)
    count = {"num_iterations": tf.constant(2)}
    # Poses, activations and weights only; votes are 10 and 4 times as many as poses.
    assert max(shape.num_elements() for shape in transposed(layer, children, **count)) <= children[0].size
    _, inside = traced(lambda *children: layer(children, **count), *children)
    assert inside["Transpose"] == 0


@pytest.mark.parametrize("kind", [conv, classes])
def test_no_transpose_exceeds_rank_six(kind):
    children = capsules((9, 9))
    layer = known(kind(), children)
    ranks = [len(shape) for shape in transposed(layer, children, num_iterations=tf.constant(2))]
    # As in an exported graph, where the routing lies in no function of its own.
    with tf.init_scope():
        tf.config.run_functions_eagerly(True)
    try:
        ranks += [len(shape) for shape in transposed(layer, children)]
    finally:
        tf.config.run_functions_eagerly(False)
    assert 4 <= max(ranks) <= 6


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("kind", [conv, classes])
def test_votes_may_be_half_precision_but_routing_is_not(kind, policy):
    children = capsules()
    expected = known(kind(), children)(children)
    with dtype_policy(policy):
        layer = known(kind(), children)
    assert layer.routing.compute_dtype == "float32"
    results = layer(children)
    for tensor, other in zip(results, expected, strict=True):
        assert tensor.dtype == "float32"
        np.testing.assert_allclose(tensor, other, rtol=0.1, atol=0.05)


@pytest.mark.parametrize(
    "create",
    [
        lambda: MatrixPrimaryCapsules(3, "vector"),
        lambda: conv(2, "vector", variant="official"),
        lambda: classes("vector", (ROWS, COLUMNS), entries=(0, 1)),
    ],
    ids=["primary", "conv", "classes"],
)
def test_its_configuration_holds_every_option(create):
    layer = create()
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    again = keras.saving.deserialize_keras_object(config, safe_mode=True)
    assert json.loads(json.dumps(keras.saving.serialize_keras_object(again))) == config


@pytest.mark.parametrize(
    "create",
    [lambda: MatrixPrimaryCapsules(3, "tensor"), lambda: conv(1, "tensor"), lambda: classes("tensor")],
)
def test_another_kind_of_pose_is_refused(create):
    with pytest.raises(ValueError, match=r"pose must be 'matrix' or 'vector'\. Received: 'tensor'"):
        create()


def test_a_routing_of_another_layer_is_refused():
    """It would go on with the neighbourhood of the last layer that was built."""
    routing = EMRouting(1, activation="mixing")
    capsules = MatrixPrimaryCapsules(2)(keras.Input((14, 14, 8)))
    capsules = ConvCapsules(2, 3, 2, routing)(capsules)
    with pytest.raises(ValueError, match="a routing belongs to one layer"):
        ConvCapsules(2, 3, 2, routing)(capsules)


def test_a_grid_smaller_than_the_window_is_refused():
    with pytest.raises(ValueError, match=r"at least 3x3 children is needed\. Received: \(2, 6\)"):
        conv()(capsules((2, 6)))
