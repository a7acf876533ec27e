"""Connectionist routing, beyond what every routing obeys (`conformance/test_routing.py`)."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles import lstm_routing as oracle
from support import arrays, fill

from capszoo.routing import LSTMRouting

CHILDREN, PARENTS, DEPTH, UNITS = 5, 3, 4, 3
both_roles = pytest.mark.parametrize("state_roles", ["paper", "code"])


def problem(*leading, seed=0):
    """Votes `[..., I, O, D]` and activations `[..., I]`, in float64."""
    rng = np.random.default_rng(seed)
    votes = rng.normal(size=(*leading, CHILDREN, PARENTS, DEPTH))
    return votes, rng.uniform(size=(*leading, CHILDREN))


def made(compatibility=(), activation=(), scale=0.5, **options):
    """LSTM routing in float64 with known weights."""
    layer = LSTMRouting(UNITS, compatibility, activation, **{"dtype": "float64", **options})
    layer.build((None, CHILDREN, PARENTS, DEPTH))
    return fill(layer, scale=scale)


def of_oracle(layer, votes, activations, **options):
    weights = {weight.name: np.asarray(weight) for weight in layer.weights}

    def layers(name, hidden):
        numbers = range(1, len(hidden) + 2)
        return [(weights[f"{name}_kernel{n}"], weights[f"{name}_bias{n}"]) for n in numbers]

    cell = weights["kernel"], weights["recurrent_kernel"], weights["bias"]
    networks = layers("compatibility", layer.compatibility), layers("activation", layer.activation)
    return oracle.lstm_routing(votes, activations, cell, *networks, state_roles=layer.state_roles, **options)


# Values


@both_roles
@pytest.mark.parametrize(("compatibility", "activation"), [((), ()), ((4, 2), (5, 6))], ids=str)
def test_it_agrees_with_the_oracle_whatever_the_networks(compatibility, activation, state_roles):
    layer = made(compatibility, activation, state_roles=state_roles)
    votes, activations = problem(2)
    poses, parents, history = layer(votes, activations, return_history=True)
    expected = of_oracle(layer, votes, activations)
    np.testing.assert_allclose(poses, expected["poses"], rtol=1e-9)
    np.testing.assert_allclose(parents, expected["activations"], rtol=1e-9)
    np.testing.assert_allclose(history, expected["coefficients"], rtol=1e-9)


def test_the_cell_of_the_oracle_is_that_of_keras():
    rng = np.random.default_rng(0)
    inputs, hidden, state = rng.normal(size=7), rng.normal(size=UNITS), rng.normal(size=UNITS)
    cell = keras.layers.LSTMCell(UNITS, dtype="float64")
    cell.build((None, 7))
    fill(cell)
    _, (expected_hidden, expected_state) = cell(inputs[None], [hidden[None], state[None]])
    computed = oracle.lstm_cell(inputs, hidden, state, *cell.get_weights())
    np.testing.assert_allclose(computed[0], expected_hidden[0], rtol=1e-9)
    np.testing.assert_allclose(computed[1], expected_state[0], rtol=1e-9)


def test_each_parents_coefficients_sum_to_one_over_its_children():
    *_, history = made()(*problem(2), return_history=True)
    np.testing.assert_allclose(np.sum(history, axis=-2), 1, rtol=1e-12)


def test_the_last_bias_of_the_compatibility_network_has_no_effect():
    layer = made((4,))
    before = arrays(layer(*problem(2)))
    layer.compatibility_weights[-1].assign([3.0])
    for array, other in zip(arrays(layer(*problem(2))), before, strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-9)


def test_later_iterations_remember_earlier_ones():
    layer = made()
    twice = arrays(layer(*problem(2), num_iterations=2))
    layer.recurrent_kernel.assign(0 * layer.recurrent_kernel)
    assert np.abs(arrays(layer(*problem(2), num_iterations=2))[1] - twice[1]).max() > 1e-3


@pytest.mark.parametrize(
    ("compatibility", "activation", "parameters"),
    [((), (), 34), ((32, 32), (64, 64), 6_946), ((64, 64), (124, 124), 23_046)],
    ids=str,
)
def test_the_networks_of_table_2_have_its_parameters_beside_3264_of_the_cell(
    compatibility, activation, parameters
):
    layer = LSTMRouting(16, compatibility, activation)
    layer.build((None, 72, 16, 16))
    assert layer.count_params() == 3_264 + parameters


def test_fresh_forget_gates_are_open():
    layer = LSTMRouting(UNITS)
    layer.build((None, CHILDREN, PARENTS, DEPTH))
    np.testing.assert_array_equal(layer.bias, [0] * UNITS + [1] * UNITS + [0] * 2 * UNITS)


# Positions


def test_on_a_grid_every_position_is_routed_by_itself():
    layer, (votes, activations) = made((4,)), problem(2, 3, 2)
    poses, parents = arrays(layer(votes, activations))
    for place in np.ndindex(3, 2):
        here = (slice(None), *place)
        alone = arrays(layer(votes[here], activations[here]))
        np.testing.assert_allclose(poses[here], alone[0], rtol=1e-9)
        np.testing.assert_allclose(parents[here], alone[1], rtol=1e-9)


# Memory


def gradients(layer, votes, activations):
    inputs = [tf.constant(votes), tf.constant(activations)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(*inputs)
    return arrays([outputs, tape.gradient(outputs, [*inputs, *layer.trainable_weights])])


def test_what_is_computed_again_for_the_gradient_changes_nothing(monkeypatch):
    expected = gradients(made((4,), (5,)), *problem(2))
    monkeypatch.setattr(keras, "remat", lambda function: function)
    for array, other in zip(gradients(made((4,), (5,)), *problem(2)), expected, strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-9, atol=1e-12)


def test_gradients_are_the_same_where_functions_run_eagerly(request):
    expected = gradients(made((4,), (5,)), *problem(2))
    request.getfixturevalue("eagerly")
    for array, other in zip(gradients(made((4,), (5,)), *problem(2)), expected, strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-9, atol=1e-12)


def test_every_iteration_is_computed_again_and_keeps_only_logits_and_states(monkeypatch):
    kept = []

    def watched(function):
        def run(*arguments):
            results = function(*arguments)
            kept.append([tuple(tensor.shape) for tensor in results])
            return results

        return run

    monkeypatch.setattr(keras, "remat", watched)
    made()(*problem(2), num_iterations=3)
    pairs = (2, PARENTS, CHILDREN)
    assert kept == [[pairs, (UNITS, *pairs), (UNITS, *pairs)]] * 3


def test_no_tensor_joins_the_poses_of_child_and_parent():
    layer = made((4,))
    inputs = (tf.constant(array) for array in problem(2))
    graph = tf.function(lambda *inputs: layer(*inputs), autograph=False).get_concrete_function(*inputs).graph
    (call,) = (node for node in graph.get_operations() if "PartitionedCall" in node.type)
    body = graph._get_function(call.get_attr("f").name).graph
    widest = max(
        tensor.shape[0]
        for operation in body.get_operations()
        for tensor in operation.outputs
        if tensor.shape.rank == 4 and tensor.shape[1:] == (2, PARENTS, CHILDREN)
    )
    # The gates; all that a cell is given, two poses, two numbers and a hidden state, were one more.
    assert widest == 4 * UNITS == 2 * DEPTH + 2 + UNITS - 1


# Bad places

HARD = {
    "zero poses and activations": lambda votes, activations: (0 * votes, 0 * activations),
    "huge votes": lambda votes, activations: (1e4 * votes, activations),
    "one active child": lambda votes, activations: (votes, activations * (np.arange(CHILDREN) == 2)),
}


@pytest.mark.slow
@both_roles
def test_in_hard_places_values_and_gradients_are_finite(state_roles):
    layer = made((4,), (5,), dtype="float32", state_roles=state_roles)
    for name, change in HARD.items():
        votes, activations = (array.astype("float32") for array in change(*problem(2)))
        for array in gradients(layer, votes, activations):
            assert np.all(np.isfinite(array)), name


# Options and errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state_roles": "keras"}, "state_roles must be 'paper' or 'code'. Received: 'keras'"),
        ({"units": 0}, r"units must be at least 1\. Received: 0"),
    ],
)
def test_a_wrong_option_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LSTMRouting(**options)


def test_votes_without_activations_are_refused():
    with pytest.raises(ValueError, match=r"LSTMRouting needs the children's activations\. Received: None"):
        made()(problem(1)[0])
