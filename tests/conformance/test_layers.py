"""What every layer obeys."""

import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from conformance.goldens import LAYERS
from support import POLICIES, arrays, by_path, dtype_policy, fill

from capszoo.layers import DenseCapsules, DepthwisePrimaryCapsules, PrimaryCapsules
from capszoo.layers.routes import Routes
from capszoo.routing import DynamicRouting

pytestmark = pytest.mark.usefixtures("eagerly")

every_layer = pytest.mark.parametrize("golden", LAYERS, ids=lambda golden: golden.name)


def fresh(golden):
    layer = golden.create(name="layer")
    layer(*golden.arrays())
    return fill(layer)


# One layer for many tests, because tracing costs more than computing.
shared = functools.cache(fresh)


def made(golden):
    """The golden's layer with known weights, and its inputs."""
    return fill(shared(golden)), golden.arrays()


def close(outputs, expected, **tolerance):
    keras.tree.map_structure(
        lambda output, other: np.testing.assert_allclose(tf.cast(output, "float32"), other, **tolerance),
        outputs,
        expected,
    )


@every_layer
def test_its_weights_have_the_paths_and_shapes_of_the_golden(golden):
    layer, _ = made(golden)
    assert by_path(layer) == golden.weights


@every_layer
def test_its_output_has_the_shape_of_the_golden_with_and_without_a_known_batch(golden):
    layer, inputs = made(golden)
    for output, batch in ((layer(*inputs), 3), (layer(*golden.symbols()), None)):
        shapes = keras.tree.map_structure(lambda tensor: tensor.shape, output)
        pair = not isinstance(golden.output[0], int)
        assert shapes == (
            tuple((batch, *shape) for shape in golden.output) if pair else (batch, *golden.output)
        )


@every_layer
def test_its_configuration_makes_it_again(golden):
    layer, inputs = made(golden)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    again = keras.saving.deserialize_keras_object(config, safe_mode=True)
    assert type(again) is type(layer)
    assert json.loads(json.dumps(keras.saving.serialize_keras_object(again))) == config
    again(*inputs)
    assert [weight.path for weight in again.weights] == [weight.path for weight in layer.weights]
    again.set_weights(layer.get_weights())
    close(again(*inputs), layer(*inputs), rtol=0, atol=0)


@every_layer
def test_saved_and_loaded_it_gives_identical_outputs(golden, tmp_path):
    symbols = golden.symbols()
    model = fill(keras.Model(symbols, golden.create(name="layer")(*symbols)))
    model.save(tmp_path / "layer.keras")
    loaded = keras.models.load_model(tmp_path / "layer.keras", safe_mode=True)
    expected, outputs = (arrays(net(golden.arrays())) for net in (model, loaded))
    close(outputs, expected, rtol=0, atol=0)


@pytest.mark.rewritten
@every_layer
# In a graph without XLA every model predicts.
@pytest.mark.parametrize("how", [pytest.param("graph", marks=pytest.mark.slow), "xla"])
def test_it_says_the_same_however_it_is_run(golden, how):
    layer, inputs = made(golden)
    run = tf.function(lambda *inputs: layer(*inputs), autograph=False, jit_compile=how == "xla")
    close(run(*inputs), layer(*inputs), rtol=1e-4, atol=1e-5)


@every_layer
def test_rows_do_not_depend_on_each_other(golden):
    layer, inputs = made(golden)
    expected = arrays(layer(*inputs))
    for array in keras.tree.flatten(inputs):
        array[0] = np.nan
    for array, other in zip(arrays(layer(*inputs)), expected, strict=True):
        np.testing.assert_allclose(array[1:], other[1:], rtol=1e-5, atol=1e-6)


@every_layer
def test_a_finite_gradient_reaches_every_weight(golden):
    layer, inputs = made(golden)
    with tf.GradientTape() as tape:
        total = sum(tf.reduce_sum(tf.square(tensor)) for tensor in keras.tree.flatten(layer(*inputs)))
    weights = layer.trainable_weights
    for weight, gradient in zip(weights, tape.gradient(total, weights), strict=True):
        assert gradient is not None, f"{weight.path} gets no gradient"
        assert np.all(np.isfinite(gradient)), weight.path
        assert np.any(gradient != 0), weight.path


@every_layer
def test_zero_inputs_have_finite_values_and_gradients_whatever_the_weights(golden):
    layer, inputs = made(golden)
    inputs = keras.tree.map_structure(tf.zeros_like, inputs)
    watched = keras.tree.flatten(inputs)
    for scale in (0.3, 0.0):
        fill(layer, scale=scale)
        with tf.GradientTape() as tape:
            tape.watch(watched)
            output = keras.tree.flatten(layer(*inputs))
        gradients = tape.gradient(output, watched + layer.weights)
        for array in arrays(output + [gradient for gradient in gradients if gradient is not None]):
            assert np.all(np.isfinite(array))


@pytest.mark.parametrize(
    "golden",
    [golden for golden in LAYERS if isinstance(golden.create(), Routes)],
    ids=lambda golden: golden.name,
)
def test_children_of_another_shape_are_refused(golden):
    layer, inputs = made(golden)
    wider = keras.tree.map_structure(lambda array: np.repeat(array, 2, axis=1), inputs)
    with pytest.raises(ValueError, match="incompatible with the layer"):
        layer(*wider)


@every_layer
def test_the_shape_of_its_output_is_known_before_it_is_built(golden):
    layer = golden.create(name="layer")
    if type(layer).compute_output_shape is keras.Layer.compute_output_shape:
        return  # Traced from symbols, in the tests above.
    shapes = [keras.tree.map_structure(lambda symbol: symbol.shape, symbol) for symbol in golden.symbols()]
    pair = not isinstance(golden.output[0], int)
    expected = tuple((None, *shape) for shape in golden.output) if pair else (None, *golden.output)
    assert layer.compute_output_shape(*shapes) == expected


@pytest.mark.parametrize("side", [4, 8])
def test_windows_larger_than_the_feature_map_are_refused(side):
    for layer in (PrimaryCapsules(2, 4, 9), DepthwisePrimaryCapsules(2, 4, 9)):
        with pytest.raises(ValueError, match=f"window of 9 needs .* Received: {side}"):
            layer(keras.Input((side, side, 8)))


def test_single_layers_run_over_time():
    frames = keras.Input((4, 6, 6, 2))
    poses = keras.layers.TimeDistributed(PrimaryCapsules(2, 3, 3))(frames)
    classes = keras.layers.TimeDistributed(DenseCapsules(3, 4, DynamicRouting()))(poses)
    assert classes.shape == (None, 4, 3, 4)


@every_layer
@pytest.mark.parametrize("policy", [*POLICIES, "float64"])
def test_mixed_precision_keeps_weights_and_what_is_promised_in_float32(golden, policy):
    layer, inputs = made(golden)
    expected = layer(*inputs)
    with dtype_policy(policy):
        mixed = fresh(golden)
        output = mixed(*inputs)
        symbols = mixed(*golden.symbols())
    promised = "float32" if golden.float32 else policy.removeprefix("mixed_")
    tensors = keras.tree.flatten([output, symbols])
    assert {keras.backend.standardize_dtype(tensor.dtype) for tensor in tensors} == {promised}
    kept = {"float32", "float64"} if policy == "float64" else {"float32"}
    assert {weight.dtype for weight in mixed.weights} <= {*kept, "int32"}
    # bfloat16 has 8 bits.
    close(output, expected, rtol=0.05, atol=0.05)
