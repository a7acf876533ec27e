"""What every architecture obeys, shown on small networks; and the size of every preset."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from conformance.goldens import MODELS, PRESETS
from support import arrays

from capszoo.models.architecture import Classifies
from capszoo.models.network import trainable_parameters
from capszoo.zoo import recipes
from capszoo.zoo.presets import get_preset


@pytest.fixture(scope="module", params=MODELS, ids=lambda golden: golden.name)
def golden(request):
    return request.param


@pytest.fixture(scope="module")
def model(golden):
    """The golden's network, untrained. Made once, because tracing costs more than computing: leave its weights."""
    keras.utils.set_random_seed(0)
    return golden.build()


@pytest.fixture(scope="module")
def objective(golden, model):
    return golden.objective(model)


@pytest.fixture
def batch(golden):
    return golden.batch()


def loss_of(objective, batch):
    """Sum of the objective's losses on a batch, as training sees it."""
    inputs, targets = objective.arrange(batch)
    outputs = objective.model(inputs, training=True)
    return sum(loss(targets[name], outputs[name]) for name, loss in objective.losses.items())


def loss_and_gradients(model, objective, batch):
    with tf.GradientTape() as tape:
        loss = loss_of(objective, batch)
    return loss, tape.gradient(loss, model.trainable_weights)


def test_its_outputs_have_the_names_and_shapes_of_the_golden(golden, model, batch):
    outputs = model(batch["images"])
    assert {name: tuple(tensor.shape[1:]) for name, tensor in outputs.items()} == golden.outputs
    assert {name: tensor.shape for name, tensor in model.output.items()} == {
        name: (None, *shape) for name, shape in golden.outputs.items()
    }
    assert all(tensor.dtype == "float32" for tensor in outputs.values())


def test_scores_and_reconstructions_lie_between_zero_and_one(model, batch):
    outputs = model(batch["images"])
    for name in {"scores", "reconstruction"} & set(outputs):
        assert np.min(outputs[name]) >= 0
        assert np.max(outputs[name]) <= 1


def test_saved_and_loaded_it_gives_identical_outputs(model, batch, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    assert [weight.path for weight in loaded.weights] == [weight.path for weight in model.weights]
    expected, outputs = model(batch["images"]), loaded(batch["images"])
    assert set(outputs) == set(expected)
    for name, tensor in outputs.items():
        np.testing.assert_array_equal(tensor, expected[name], err_msg=name)


def test_it_is_made_without_lambdas(model):
    assert not [layer for layer in model.layers if isinstance(layer, keras.layers.Lambda)]


def test_its_named_stages_are_layers(golden, model):
    for stage in golden.architecture.stages:
        for tensor in keras.tree.flatten(model.get_layer(stage).output):
            assert tensor.shape[0] is None


def test_an_image_means_the_same_alone_and_in_any_company(model, batch):
    images = batch["images"]
    expected = model(images)
    alone = model(images[2:3])
    images[0] = np.nan
    beside_a_broken_one = model(images)
    for name, tensor in expected.items():
        np.testing.assert_allclose(alone[name][0], tensor[2], rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(
            beside_a_broken_one[name][2], tensor[2], rtol=1e-5, atol=1e-6, err_msg=name
        )


@pytest.mark.rewritten
def test_what_is_predicted_of_an_image_with_a_broken_pixel_is_nan(model, batch):
    images = batch["images"]
    images[0, 3, 3, 0], images[1, 3, 3, 0] = np.nan, np.inf
    outputs = model.predict_on_batch(images)
    for name, array in outputs.items():
        assert np.isnan(array[:2]).all(), name
        assert np.isfinite(array[2:]).all(), name


def test_labels_do_not_appear_in_the_inference_model(model):
    assert [tensor.name for tensor in model.inputs] == ["images"]


def test_the_training_model_has_the_weights_of_the_inference_model_and_no_others(model, objective):
    assert {id(weight) for weight in objective.model.weights} == {id(weight) for weight in model.weights}


def test_a_gradient_reaches_every_parameter(golden, model, objective, batch):
    _, gradients = loss_and_gradients(model, objective, batch)
    rounding = 1e-6 + 1e-5 * max(np.abs(array).max() for array in arrays(gradients))
    for end in golden.unfelt:
        assert any(weight.path.endswith(end) for weight in model.trainable_weights), end
    for weight, gradient in zip(model.trainable_weights, gradients, strict=True):
        assert gradient is not None, f"{weight.path} gets no gradient"
        assert np.all(np.isfinite(gradient)), weight.path
        if weight.path.endswith(golden.unfelt):
            np.testing.assert_allclose(gradient, 0, atol=rounding, err_msg=weight.path)
        else:
            assert np.any(gradient != 0), weight.path


# Greys of the images of a batch in turn. Black alone, too: where a whole batch is one grey, it has no deviation.
@pytest.mark.parametrize(
    ("greys", "weights"),
    [
        pytest.param([0.0, 0.5, 1.0], "initial", marks=pytest.mark.slow),
        ([0.0], "initial"),
        ([0.0], "zero"),
    ],
)
def test_constant_images_have_finite_outputs_and_gradients(model, objective, batch, greys, weights):
    for image, grey in zip(batch["images"], itertools.cycle(greys), strict=False):
        image[:] = grey
    before = model.get_weights()
    if weights == "zero":
        model.set_weights([np.zeros_like(weight) for weight in before])
    outputs, learnt = model(batch["images"]), loss_and_gradients(model, objective, batch)
    model.set_weights(before)
    for array in arrays([outputs, learnt]):
        assert np.all(np.isfinite(array))


@pytest.mark.slow
def test_one_batch_can_be_learnt_by_heart(golden, batch):
    """The loss falls to a tenth, above its least; or, where it is a bound without one, the reconstructions' error."""
    model = golden.build()
    objective = golden.objective(model)
    objective.compile(keras.optimizers.Adam(golden.learning_rate), batch)
    inputs, targets = objective.arrange(batch)

    def step():
        objective.model.reset_metrics()
        return objective.model.train_on_batch(inputs, targets, return_dict=True)["loss"]

    def error():
        return np.square(model.predict_on_batch(batch["images"])["reconstruction"] - batch["images"]).sum()

    if golden.architecture.has(Classifies):
        first, steps, left = step(), 1, step
        enough = golden.least_loss + 0.1 * (first - golden.least_loss)
    else:
        first, steps, left = error(), 10, lambda: [step() for _ in range(10)] and error()
        # Half of what one picture for all images would leave: images differ.
        enough = min(0.1 * first, 0.5 * np.square(batch["images"] - batch["images"].mean(axis=0)).sum())
    assert any(left() < enough for _ in range(0, golden.steps, steps)), f"{first} at first, {enough} wanted"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_trainable_parameters_of_the_golden(name):
    # Published weights are held against their card where they are loaded.
    card = get_preset(name).card
    learnt = card.parameters if card else trainable_parameters(recipes.read_recipe(name).build())
    assert learnt == PRESETS[name]
