"""What every routing obeys."""

import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from conformance.goldens import ROUTINGS
from support import POLICIES, arrays, dtype_policy, fill, numeric_gradient, traced

pytestmark = pytest.mark.usefixtures("eagerly")

CLOSE = {"rtol": 1e-4, "atol": 2e-5}

every_routing = pytest.mark.parametrize("golden", ROUTINGS, ids=lambda golden: golden.name)
every_count = pytest.mark.parametrize(
    ("golden", "count"),
    [(golden, count) for golden in ROUTINGS for count in golden.iterations],
    ids=lambda value: value if isinstance(value, int) else value.name,
)


def fresh(golden, votes_shape=None, **keywords):
    layer = golden.create(**keywords)
    layer.build(votes_shape or golden.votes_shape)
    return fill(layer)


# One routing for many tests, because tracing costs more than computing.
shared = functools.cache(fresh)


def made(golden):
    """The golden's routing with known weights, its votes and its children's activations."""
    return fill(shared(golden)), *golden.inputs()


def weights_of(layer):
    return {weight.name: keras.ops.convert_to_numpy(weight) for weight in layer.weights}


@every_routing
def test_its_weights_have_the_names_and_shapes_of_the_golden(golden):
    layer, *_ = made(golden)
    assert {weight.name: tuple(weight.shape) for weight in layer.weights} == golden.weights


@every_routing
def test_votes_of_low_rank_and_missing_activations_are_refused(golden):
    layer, votes, _ = made(golden)
    with pytest.raises(ValueError, match="Received shape"):
        golden.create().build(votes.shape[1:])
    if golden.takes_activations:
        with pytest.raises(ValueError, match=r"needs the children's activations\. Received: None"):
            layer(votes)


@every_count
def test_it_agrees_with_the_oracle(golden, count):
    layer, votes, activations = made(golden)
    poses, parents, history = layer(votes, activations, num_iterations=count, return_history=True)
    expected = golden.oracle(votes, activations, weights_of(layer), count)
    np.testing.assert_allclose(poses, expected["poses"], **CLOSE)
    np.testing.assert_allclose(parents, expected["activations"], **CLOSE)
    np.testing.assert_allclose(history, expected["coefficients"], **CLOSE)


@pytest.mark.parametrize(
    ("golden", "count"),
    # The gradient of the last count goes through what fewer iterations do.
    [
        pytest.param(
            golden,
            count,
            id=f"{golden.name}-{count}",
            marks=[] if count == golden.iterations[-1] else pytest.mark.slow,
        )
        for golden in ROUTINGS
        for count in golden.iterations
    ],
)
def test_its_gradients_are_the_slopes_of_the_oracle(golden, count):
    # Small, and in float64, so that the slopes are sharp; what is left is the epsilons that the oracle does without.
    votes, activations = golden.inputs()
    votes = votes[:1, :3].astype("float64")
    layer = fresh(golden, votes.shape, dtype="float64")
    points = {"votes": votes, **weights_of(layer)}
    if golden.takes_activations:
        activations = points["activations"] = activations[:1, :3].astype("float64")
    mix = np.random.default_rng(5)
    of_poses, of_parents = (
        mix.normal(size=(1, *golden.votes_shape[2:])),
        mix.normal(size=(1, golden.votes_shape[2])),
    )

    def oracle(changed):
        at = {**points, **changed}
        weights = {name: at[name] for name in golden.weights}
        result = golden.oracle(at["votes"], at.get("activations"), weights, count)
        return np.sum(of_poses * result["poses"]) + np.sum(of_parents * result["activations"])

    tensors = {name: tf.constant(value) for name, value in points.items() if name not in golden.weights}
    tensors |= {weight.name: weight.value for weight in layer.weights}
    with tf.GradientTape() as tape:
        tape.watch(list(tensors.values()))
        poses, parents = layer(tensors["votes"], tensors.get("activations"), num_iterations=count)
        total = tf.reduce_sum(of_poses * poses) + tf.reduce_sum(of_parents * parents)
    for name, gradient in tape.gradient(total, tensors).items():
        slopes = numeric_gradient(lambda value, name=name: oracle({name: value}), points[name])
        np.testing.assert_allclose(gradient, slopes, rtol=1e-3, atol=2e-4, err_msg=name)


@every_routing
def test_the_order_of_children_does_not_matter_to_parents(golden):
    layer, votes, activations = made(golden)
    order = np.random.default_rng(1).permutation(votes.shape[1])
    poses, parents, history = layer(votes, activations, return_history=True)
    shuffled = None if activations is None else activations[:, order]
    layer.set_weights(
        [
            value[..., order] if name in golden.per_child else value
            for name, value in weights_of(layer).items()
        ]
    )
    moved_poses, moved_parents, moved_history = layer(votes[:, order], shuffled, return_history=True)
    np.testing.assert_allclose(moved_poses, poses, **CLOSE)
    np.testing.assert_allclose(moved_parents, parents, **CLOSE)
    np.testing.assert_allclose(moved_history, history.numpy()[:, :, order], **CLOSE)


@every_routing
def test_reordered_parents_come_out_reordered(golden):
    layer, votes, activations = made(golden)
    order = np.roll(np.arange(votes.shape[2]), 1)
    poses, parents, history = arrays(layer(votes, activations, return_history=True))
    layer.set_weights(
        [value[order] if name in golden.per_parent else value for name, value in weights_of(layer).items()]
    )
    moved_poses, moved_parents, moved_history = layer(votes[:, :, order], activations, return_history=True)
    np.testing.assert_allclose(moved_poses, poses[:, order], **CLOSE)
    np.testing.assert_allclose(moved_parents, parents[:, order], **CLOSE)
    np.testing.assert_allclose(moved_history, history[..., order], **CLOSE)


@every_routing
def test_an_image_is_routed_as_if_it_were_alone(golden):
    layer, votes, activations = made(golden)
    together, *_ = layer(votes, activations)
    alone, *_ = layer(votes[:1], None if activations is None else activations[:1])
    np.testing.assert_allclose(alone[0], together[0], rtol=1e-5, atol=1e-6)


@every_routing
def test_zero_votes_and_activations_have_finite_values_and_gradients_whatever_the_weights(golden):
    layer, votes, activations = made(golden)
    inputs = [tf.zeros_like(votes)] + ([] if activations is None else [tf.zeros_like(activations)])
    for scale in (0.3, 0.0):
        fill(layer, scale=scale)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(*inputs)
        gradients = tape.gradient(outputs, inputs + layer.trainable_weights)
        for array in arrays(outputs) + arrays(gradients):
            assert np.all(np.isfinite(array))


@every_routing
@pytest.mark.parametrize("magnitude", [1e-6, 1e4])
def test_tiny_and_huge_votes_stay_finite(golden, magnitude):
    layer, votes, activations = made(golden)
    votes = tf.constant(votes * np.float32(magnitude))
    with tf.GradientTape() as tape:
        tape.watch(votes)
        outputs = layer(votes, activations)
    for array in [*arrays(outputs), *arrays(tape.gradient(outputs, votes))]:
        assert np.all(np.isfinite(array))


@pytest.mark.rewritten
@every_routing
@pytest.mark.parametrize(
    "how",
    # A loop over a count that is a tensor is the same in any graph, and harder for XLA.
    [
        "graph",
        "xla",
        *(pytest.param(how, marks=pytest.mark.slow) for how in ("tensor", "tensor_in_graph")),
        "tensor_in_xla",
    ],
)
def test_it_says_the_same_however_it_is_run(golden, how):
    layer, votes, activations = made(golden)
    count = golden.iterations[-1]
    expected = arrays(layer(votes, activations, num_iterations=count))
    route = lambda votes, count: layer(votes, activations, num_iterations=count)  # noqa: E731
    if how.endswith("graph"):
        route = tf.function(route, autograph=False)
    if how.endswith("xla"):
        route = tf.function(route, autograph=False, jit_compile=True)
    count = tf.constant(count, "int32") if how.startswith("tensor") else count
    for array, other in zip(arrays(route(votes, count)), expected, strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-4, atol=1e-5)


@pytest.mark.traced
@every_routing
def test_a_tensor_count_has_the_gradient_of_the_count_as_a_number(golden):
    layer, votes, activations = made(golden)

    def gradient(count):
        watched = tf.constant(votes)
        with tf.GradientTape() as tape:
            tape.watch(watched)
            poses, _ = layer(watched, activations, num_iterations=count)
        return tape.gradient(poses, watched)

    count = golden.iterations[-1]
    np.testing.assert_allclose(gradient(tf.constant(count)), gradient(count), rtol=1e-4, atol=1e-5)


@pytest.mark.traced
@every_routing
def test_a_count_given_as_a_number_is_unrolled_inside_one_nested_function(golden):
    layer, votes, activations = made(golden)
    top, inside = traced(lambda votes: layer(votes, activations, num_iterations=golden.iterations[-1]), votes)
    assert top["PartitionedCall"] + top["StatefulPartitionedCall"] == 1
    for operations in (top, inside):
        assert operations["While"] + operations["StatelessWhile"] == 0


@pytest.mark.traced
@every_routing
def test_a_tensor_count_is_one_loop_that_is_traced_once(golden):
    layer, votes, activations = made(golden)
    top, inside = traced(
        lambda count: layer(votes, activations, num_iterations=count), tf.TensorSpec([], tf.int32)
    )
    assert top["PartitionedCall"] + top["StatefulPartitionedCall"] == 1
    assert inside["While"] + inside["StatelessWhile"] == 1

    traces = []

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)], autograph=False)
    def served(count):
        traces.append(count)
        return layer(votes, activations, num_iterations=count)

    for count in golden.iterations:
        poses, _ = layer(votes, activations, num_iterations=count)
        np.testing.assert_allclose(served(count)[0], poses, rtol=1e-4, atol=1e-5)
    assert len(traces) == 1


@every_count
def test_its_history_holds_the_coefficients_of_every_iteration(golden, count):
    layer, votes, activations = made(golden)
    poses, parents, history = layer(votes, activations, num_iterations=count, return_history=True)
    plain_poses, plain_parents = layer(votes, activations, num_iterations=count)
    assert history.shape == (count, *votes.shape[:-1])
    np.testing.assert_array_equal(poses, plain_poses)
    np.testing.assert_array_equal(parents, plain_parents)
    assert np.min(history) >= 0
    if golden.share == "all":
        np.testing.assert_allclose(np.sum(history, axis=-1), 1, rtol=1e-5)
    if golden.share == "some":
        assert np.max(np.sum(history, axis=-1)) < 1


@every_routing
@pytest.mark.parametrize("policy", POLICIES)
def test_it_computes_in_float32_under_mixed_precision(golden, policy):
    layer, votes, activations = made(golden)
    half = tf.cast(votes, policy.removeprefix("mixed_"))
    expected = layer(tf.cast(half, "float32"), activations)
    with dtype_policy(policy):
        mixed = fresh(golden)
        outputs = mixed(half, activations)
    for tensor, other in zip(outputs, expected, strict=True):
        assert tensor.dtype == "float32"
        np.testing.assert_array_equal(tensor, other)
    assert all(weight.dtype == "float32" for weight in mixed.weights)


@every_routing
def test_its_configuration_makes_it_again(golden):
    layer, votes, activations = made(golden)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    again = keras.saving.deserialize_keras_object(config, safe_mode=True)
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()
    again(votes, activations)
    again.set_weights(layer.get_weights())
    for array, other in zip(again(votes, activations), layer(votes, activations), strict=True):
        np.testing.assert_array_equal(array, other)


@every_routing
def test_symbolic_shapes_are_those_of_the_tensors(golden):
    layer, votes, activations = made(golden)
    symbols = [keras.Input(votes.shape[1:])] + (
        [] if activations is None else [keras.Input(votes.shape[1:-2])]
    )
    poses, parents = layer(*symbols)
    assert poses.shape == (None, *votes.shape[2:])
    assert parents.shape == (None, votes.shape[2])


@every_routing
def test_a_count_below_one_is_refused_whatever_it_is_given_as(golden):
    layer, votes, activations = made(golden)
    for count in (0, np.int64(0), tf.constant(0)):
        with pytest.raises(ValueError, match=r"at least 1\. Received: 0"):
            layer(votes, activations, num_iterations=count)


@pytest.mark.rewritten
@every_routing
def test_no_images_have_no_parents(golden):
    layer, votes, activations = made(golden)
    poses, parents = layer(votes[:0], None if activations is None else activations[:0])
    assert poses.shape == (0, *votes.shape[2:])
    assert parents.shape == (0, votes.shape[2])


@every_routing
def test_a_history_of_a_tensor_count_is_refused(golden):
    layer, votes, activations = made(golden)
    with pytest.raises(ValueError, match="return_history=True needs num_iterations as an int"):
        layer(votes, activations, num_iterations=tf.constant(2), return_history=True)
