"""Plain Keras: `compile(optimizer)` and `fit(images, labels)` train a network as its paper does."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny import draw_bars

from capszoo.data.checking import ImageError
from capszoo.data.preprocessing import Preprocessing
from capszoo.models import (
    AttentionCapsNet,
    ConsensusEMNet,
    ConvNet,
    DynamicCapsNet,
    HeinsenCapsNet,
    MatrixCapsNet,
    SparseCapsNet,
)
from capszoo.models.class_metrics import OfClasses
from capszoo.models.freezing import freeze_below
from capszoo.models.targets import check_labels, label_tensors

DYNAMIC = DynamicCapsNet(channels=8, primary_types=2)
MATRIX = MatrixCapsNet(channels=8, primary_types=2, conv1_types=3, conv2_types=3, num_iterations=1)
SMALL = {
    "dynamic": DYNAMIC,
    "matrix": MATRIX,
    "cnn": ConvNet(channels=(4, 4), hidden=8),
    "consensus": ConsensusEMNet(channels=8, primary_types=2, conv1_types=3, conv2_types=3),
}
LEVELS, LABELS = draw_bars(40, 0)
IMAGES = LEVELS[..., None] / np.float32(255)
LABELS = LABELS.astype("int64")


def built(architecture, classes=10):
    keras.utils.set_random_seed(0)
    model = architecture.build((28, 28, 1), classes)
    model.preprocess = Preprocessing()
    return model


def weights_of(model):
    return [np.asarray(weight).copy() for weight in model.trainable_weights]


@pytest.mark.parametrize(
    "name",
    ["dynamic", "matrix", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cnn", "consensus"))],
)
def test_fit_does_what_a_step_on_the_objective_does(name):
    fitted, stepped = built(SMALL[name]), built(SMALL[name])
    keras.utils.set_random_seed(1)
    fitted.compile(keras.optimizers.SGD(0.1))
    logs = fitted.fit(IMAGES, LABELS, batch_size=40, shuffle=False, verbose=0).history
    keras.utils.set_random_seed(1)
    objective = SMALL[name].objective(stepped)
    objective.model.compile(keras.optimizers.SGD(0.1), loss=objective.losses)
    batch = {"images": IMAGES, "labels": LABELS, "progress": 0.0}
    loss = objective.model.train_on_batch(*objective.arrange(batch), return_dict=True)["loss"]
    assert "accuracy" in " ".join(logs)
    np.testing.assert_allclose(logs["loss"], [loss], rtol=1e-4)
    if name != "cnn":  # whose dropout has a state of its own
        for one, other in zip(weights_of(fitted), weights_of(stepped), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.slow
def test_a_few_epochs_teach_bars():
    model = built(DYNAMIC)
    model.compile(keras.optimizers.Adam(3e-3))
    model.fit(LEVELS[..., None], LABELS[:, None], batch_size=20, epochs=12, verbose=0)
    logs = model.evaluate(IMAGES, np.eye(10)[LABELS], verbose=0, return_dict=True)
    assert logs["scores_accuracy"] > 0.5
    assert set(logs) == {"loss", "scores_loss", "reconstruction_loss", "scores_accuracy"}


def test_the_margin_of_the_spread_loss_grows_up_to_the_end_of_fit():
    # Equal scores of two classes: the loss is the squared margin.
    model = built(MATRIX, classes=2)
    for weight in model.trainable_weights:
        weight.assign(keras.ops.zeros_like(weight))
    model.compile(keras.optimizers.SGD(0.0))
    losses = []

    class Losses(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            losses.append(logs["loss"])

    model.fit(IMAGES[:20], LABELS[:20] % 2, batch_size=20, epochs=2, verbose=0, callbacks=[Losses()])
    np.testing.assert_allclose(losses, [0.2**2, 0.55**2], rtol=1e-4)


def margins_of_fit(model, data, **options):
    """The margins of each step, of a network whose scores are equal, so that the loss is the squared margin."""
    margins = []

    class Losses(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.reset_metrics()

        def on_train_batch_end(self, batch, logs=None):
            margins.append(logs["loss"] ** 0.5)

    model.fit(data, verbose=0, callbacks=[Losses()], **options)
    return margins


def test_the_margin_grows_after_a_fit_of_unknown_length_too():
    model = built(MATRIX, classes=2)
    for weight in model.trainable_weights:
        weight.assign(keras.ops.zeros_like(weight))
    model.compile(keras.optimizers.SGD(0.0))
    data = tf.data.Dataset.from_tensor_slices((IMAGES[:20], LABELS[:20] % 2)).batch(10)
    with pytest.warns(UserWarning, match="give steps_per_epoch"):
        unknown = margins_of_fit(model, data.filter(lambda *_: True))
    np.testing.assert_allclose(unknown, [0.9, 0.9], rtol=1e-4)
    np.testing.assert_allclose(margins_of_fit(model, data), [0.2, 0.55], rtol=1e-4)
    # Epochs that are done belong to the training.
    np.testing.assert_allclose(
        margins_of_fit(model, data, epochs=2, initial_epoch=1), [0.55, 0.725], rtol=1e-4
    )


@pytest.mark.parametrize("labels", [LABELS + 10, LABELS - 10])
def test_what_is_no_label_is_never_right(labels):
    """And no metric stops with an error that hides the loss, which says so."""
    model = built(SMALL["cnn"])
    errors = [keras.metrics.CategoricalCrossentropy(), keras.metrics.SparseCategoricalCrossentropy()]
    shares = [
        "accuracy",
        "categorical_accuracy",
        "sparse_categorical_accuracy",
        keras.metrics.SparseTopKCategoricalAccuracy(2, name="sparse_top_2_accuracy"),
    ]
    model.compile("adam", metrics=[*shares, *errors])
    data = tf.data.Dataset.from_tensor_slices((IMAGES, labels)).batch(20)
    logs = model.evaluate(data, verbose=0, return_dict=True)
    found = {name: value for name, value in logs.items() if "accuracy" in name}
    assert len(found) == 4
    assert set(found.values()) == {0.0}
    assert np.isnan(logs["loss"])
    assert min(logs[error.name] for error in errors) > np.log(10) - 1e-3


def test_of_equal_scores_that_of_no_label_is_not_the_first():
    metric = OfClasses("sparse_categorical_accuracy")
    metric.update_state(np.full((2, 3), np.nan, "float32"), np.full((2, 3), 0.5, "float32"))
    assert float(metric.result()) == 0


def test_losses_of_one_class_refuse_a_model_of_several():
    with pytest.raises(ValueError, match=r"needs one label per image\. Received: 2"):
        HeinsenCapsNet(channels=(4,), strides=(2,), types=2).build((20, 20, 1), 4, 2).compile("adam")


def test_a_model_knows_how_many_classes_an_image_has():
    architecture = DynamicCapsNet(channels=8, primary_types=2, decoder=False)
    model = architecture.build((20, 20, 1), 4, labels_per_image=2)
    model.compile("adam")
    pairs = np.array([[0, 1], [2, 3]])
    model.fit(np.zeros((2, 20, 20, 1), "float32"), pairs, verbose=0)
    with pytest.raises(ValueError, match=r"labels must be integers \[N, 2\]"):
        model.fit(np.zeros((2, 20, 20, 1), "float32"), pairs[:, 0], verbose=0)


@pytest.mark.parametrize("images", [[IMAGES * 255], {"images": IMAGES * 255}, list(IMAGES), [IMAGES[..., 0]]])
def test_what_is_no_image_is_refused_in_lists_and_dicts_too(images):
    model = built(MATRIX)
    for call in (model, model.predict, model.predict_on_batch):
        with pytest.raises(ImageError, match="images must"):
            call(images)


def test_fit_counts_steps_that_are_mirrored_on_devices():
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        model = built(MATRIX, classes=2)
        model.compile("adam")
    model.fit(IMAGES, LABELS % 2, batch_size=20, verbose=0)
    assert model._fitting.plan == (0, 2)


@pytest.mark.parametrize("metrics", [None, ["accuracy"]])
def test_a_callback_alone_knows_that_more_accuracy_is_better(metrics):
    model = built(MATRIX, classes=2)
    model.compile(keras.optimizers.SGD(0.0), metrics=metrics)
    patient = keras.callbacks.EarlyStopping(monitor="accuracy", patience=0, verbose=0)
    logs = model.fit(IMAGES, LABELS % 2, epochs=4, verbose=0, callbacks=patient).history
    # Nothing is learned, so that the second epoch is no better than the first.
    assert patient.monitor_op is keras.ops.greater
    assert len(logs["accuracy"]) == 2


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS + 1, r"\[0, 10\).*Received: 1 to 10"),
        (LABELS - 1, "Received: -1 to 8"),
        (LABELS + 0.5, "must be integers"),
        (np.eye(12)[LABELS], r"one-hot rows \[N, 10\]"),
        (np.full((40, 10), 0.1), "must be integers"),
        (LABELS.reshape(20, 2), r"must be integers \[N\]"),
    ],
)
def test_what_is_no_label_is_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        check_labels(labels, 10)


def test_labels_in_a_column_and_one_hot_rows_are_the_same_labels():
    for labels in (LABELS, LABELS[:, None], np.eye(10)[LABELS], list(LABELS), LABELS.astype("float32")):
        np.testing.assert_array_equal(check_labels(labels, 10), LABELS)
        tensor = keras.ops.convert_to_tensor(np.asarray(labels))
        rows, valid = label_tensors(tensor, 10)
        np.testing.assert_array_equal(rows, LABELS)
        assert np.all(valid)


def test_two_labels_an_image_come_as_rows():
    pairs = np.array([[1, 3], [0, 9]])
    hot = np.eye(10)[pairs].sum(axis=1)
    np.testing.assert_array_equal(check_labels(pairs, 10, 2), pairs)
    np.testing.assert_array_equal(check_labels(hot, 10, 2), pairs)
    with pytest.raises(ValueError, match=r"\[N, 2\]"):
        check_labels(LABELS, 10, 2)
    with pytest.raises(ValueError, match="must be different classes"):
        check_labels([[1, 3], [3, 3]], 10, 2)


def test_a_stream_of_what_is_no_label_has_no_loss():
    _, valid = label_tensors(keras.ops.convert_to_tensor([3, 10, -1]), 10)
    np.testing.assert_array_equal(valid, [True, False, False])
    _, valid = label_tensors(keras.ops.convert_to_tensor([[3, 1], [3, 3]]), 10, 2)
    np.testing.assert_array_equal(valid, [True, False])
    _, valid = label_tensors(keras.ops.convert_to_tensor([2.0, 2.7]), 10)
    np.testing.assert_array_equal(valid, [True, False])
    _, valid = label_tensors(keras.ops.convert_to_tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]), 3)
    np.testing.assert_array_equal(valid, [False, True])


def test_images_are_checked_wherever_they_go_in():
    model = built(DYNAMIC)
    model.compile("adam")
    for wrong, message in ((IMAGES * 255, r"in \[0, 1\]"), (IMAGES[..., 0], r"\[B, 28, 28, 1\]")):
        for use in (
            model,
            model.predict,
            model.predict_on_batch,
            lambda images: model.fit(images, LABELS),
            lambda images: model.evaluate(images, LABELS),
            lambda images: model.fit(IMAGES, LABELS, validation_data=(images, LABELS)),
            lambda images: model.train_on_batch(images, LABELS),
        ):
            with pytest.raises(ValueError, match=message):
                use(wrong)


def test_no_image_at_all_is_refused_in_words():
    model = built(DYNAMIC)
    for use in (model, model.predict, model.predict_on_batch):
        with pytest.raises(ValueError, match=r"images must be at least one\. Received: \[0, 28, 28, 1\]"):
            use(IMAGES[:0])


def test_a_model_is_trained_after_a_fit_that_was_wrong():
    model = built(DYNAMIC)
    model.compile("adam")
    wrong = tf.data.Dataset.from_tensor_slices((IMAGES, np.zeros((len(IMAGES), 7), "float32"))).batch(4)
    with pytest.raises(ValueError, match="labels must be integers"):
        model.fit(wrong, verbose=0)
    assert np.isfinite(model.fit(IMAGES, LABELS, verbose=0).history["loss"][0])


@pytest.mark.parametrize("use", ["train_on_batch", "test_on_batch", "evaluate"])
def test_a_model_is_trained_after_labels_were_missing(use):
    model = built(DYNAMIC)
    model.compile("adam")
    with pytest.raises(ValueError, match="labels are needed"):
        getattr(model, use)(IMAGES)
    before = weights_of(model)
    model.train_on_batch(IMAGES, LABELS)
    assert model.train_on_batch(IMAGES, LABELS, return_dict=True)["loss"] > 0
    assert any(np.any(one != other) for one, other in zip(weights_of(model), before, strict=True))


def test_images_are_taken_alone_in_a_list_and_by_name():
    model = built(DYNAMIC)
    model.compile("adam")
    losses = [model.evaluate(x, LABELS, verbose=0)[0] for x in (IMAGES, [IMAGES], {"images": IMAGES})]
    np.testing.assert_allclose(losses, losses[0])
    assert np.isfinite(model.fit({"images": IMAGES}, LABELS, verbose=0).history["loss"][0])


def test_weighted_metrics_are_of_the_classes_too():
    model = built(MATRIX)
    found = []
    for option in ("metrics", "weighted_metrics"):
        model.compile("adam", **{option: ["mse", "binary_accuracy"]})
        found.append(model.evaluate(IMAGES, LABELS, verbose=0, return_dict=True))
    assert found[0] == pytest.approx(found[1])
    with pytest.raises(ValueError, match="weighted_metrics must be a list, of the scores"):
        model.compile("adam", weighted_metrics={"scores": ["mse"]})


def test_what_was_measured_before_is_not_under_a_loss_of_ones_own():
    model = built(DYNAMIC)
    model.compile("adam", metrics=["accuracy"])
    model.train_on_batch(IMAGES, LABELS)
    model.compile("adam", loss={"scores": "mse"})
    logs = model.train_on_batch(IMAGES, {"scores": np.eye(10)[LABELS]}, return_dict=True)
    assert list(logs) == ["loss"]


def test_grey_levels_are_the_same_image():
    model = built(DYNAMIC)
    expected = model.predict(IMAGES, verbose=0)["scores"]
    np.testing.assert_allclose(model.predict(LEVELS[..., None], verbose=0)["scores"], expected, atol=1e-6)
    np.testing.assert_allclose(model(LEVELS[..., None])["scores"], expected, atol=1e-6)


def test_an_array_of_one_batch_is_predicted_without_a_pipeline_and_means_the_same(monkeypatch):
    model, through, of_keras = built(DYNAMIC), [], keras.Model.predict
    expected = of_keras(model, IMAGES[:7], verbose=0)

    def predict(model, *arguments):
        through.append(arguments)
        return of_keras(model, *arguments)

    monkeypatch.setattr(keras.Model, "predict", predict)
    found = model.predict(IMAGES[:7])
    assert not through
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert isinstance(values, np.ndarray)
        np.testing.assert_allclose(values, expected[name], rtol=1e-5, atol=1e-6)
    with_pipeline = (
        {"x": IMAGES[:33]},
        {"x": IMAGES[:7], "batch_size": 4},
        {"x": IMAGES[:7], "callbacks": [keras.callbacks.Callback()]},
        {"x": keras.ops.convert_to_tensor(IMAGES[:7])},
    )
    for count, arguments in enumerate(with_pipeline, start=1):
        model.predict(verbose=0, **arguments)
        assert len(through) == count


def test_one_loss_for_several_outputs_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match=r"compile\(optimizer\) without a loss.*Received: loss='mse'"):
        built(DYNAMIC).compile("adam", loss="mse")


@pytest.mark.slow
def test_a_loss_of_ones_own_names_its_output():
    model = built(MATRIX)
    model.compile("adam", loss={"scores": "mse", "poses": None})
    logs = model.train_on_batch(IMAGES, {"scores": np.eye(10)[LABELS]}, return_dict=True)
    assert np.isfinite(logs["loss"])


@pytest.mark.slow
def test_a_network_without_classes_is_fitted_to_images_alone():
    model = built(SparseCapsNet(channels=8, primary_types=2, latent_capsules=4))
    model.compile("adam")
    assert model.fit(IMAGES, batch_size=20, epochs=2, verbose=0).history["loss"][1] > 0


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled loss"])
def test_layers_below_a_stage_stay_as_they_are_and_loaded_ones_learn_slowly(scaled):
    model = built(MATRIX)
    assert freeze_below(model, "conv_capsules2") == ["images", "conv1", "primary_capsules", "conv_capsules1"]
    model.rates = {"conv_capsules2/kernel": 0.25}
    before = {weight.path: np.asarray(weight).copy() for weight in model.weights}
    optimizer = keras.optimizers.Lion(1e-3)
    model.compile(keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer)
    model.train_on_batch(IMAGES, LABELS)
    moved = {
        weight.path: np.abs(np.asarray(weight).copy() - before[weight.path]).max() for weight in model.weights
    }
    assert not any(moved[path] for path in moved if path.startswith(("conv1/", "primary", "conv_capsules1")))
    # A step of Lion is the learning rate.
    assert moved["class_capsules/kernel"] == pytest.approx(1e-3, rel=0.02)
    assert moved["conv_capsules2/kernel"] == pytest.approx(0.25e-3, rel=0.02)
    with pytest.raises(ValueError, match=r"class_capsules.*Received: 'top'"):
        freeze_below(model, "top")


def test_loaded_layers_learn_slowly_under_a_loss_of_ones_own_too():
    model = built(MATRIX)
    model.rates = {"conv_capsules2/kernel": 0.0}
    before = {weight.path: np.asarray(weight).copy() for weight in model.weights}
    model.compile(keras.optimizers.SGD(0.1), loss={"scores": "sparse_categorical_crossentropy"})
    model.train_on_batch(IMAGES, {"scores": LABELS})
    moved = {weight.path for weight in model.weights if (np.asarray(weight) != before[weight.path]).any()}
    assert "class_capsules/kernel" in moved
    assert "conv_capsules2/kernel" not in moved


@pytest.mark.parametrize("name", ["matrix", "dynamic"])
def test_metrics_of_ones_own_compare_scores_with_the_classes(name):
    """Not with what the loss compares them with: the spread loss multiplies classes with its margin."""
    model = built(SMALL[name])
    metrics = [
        keras.metrics.F1Score(average="macro"),
        "mse",
        "categorical_crossentropy",
        "sparse_categorical_crossentropy",
        keras.metrics.SparseTopKCategoricalAccuracy(3, name="sparse_top3"),
    ]
    model.compile("adam", metrics=metrics)
    measured = model.evaluate(IMAGES, LABELS, batch_size=20, verbose=0, return_dict=True)
    scores, one_hot = model.predict(IMAGES)["scores"], np.eye(10, dtype="float32")[LABELS]
    f1, *_, top = metrics
    expected = {
        "f1_score": (f1, one_hot),
        "mse": (keras.metrics.MeanSquaredError(), one_hot),
        "categorical_crossentropy": (keras.metrics.CategoricalCrossentropy(), one_hot),
        "sparse_categorical_crossentropy": (keras.metrics.CategoricalCrossentropy(), one_hot),
        "sparse_top3": (top, LABELS),
    }
    for key, (metric, truth) in expected.items():
        (value,) = (value for name, value in measured.items() if name.removeprefix("scores_") == key)
        metric.reset_state()
        metric.update_state(truth, scores)
        assert value == pytest.approx(float(metric.result()), rel=1e-4), key


def test_accuracy_of_two_classes_asks_for_both():
    one, both = OfClasses("accuracy", 2), np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]], "float32")
    one.update_state(both, np.array([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8], [0.9, 0.8, 0.1]], "float32"))
    assert float(one.result()) == pytest.approx(1 / 3)


def test_pixels_of_a_type_that_images_do_not_have_are_refused_in_a_data_set_too():
    """Where values are not known, 0 to 255 would be taken as they are."""
    model = built(SMALL["cnn"])
    model.compile("adam")
    images = tf.data.Dataset.from_tensor_slices((LEVELS[..., None].astype("int32"), LABELS)).batch(20)
    for use in (model.predict, model.fit):
        with pytest.raises(ValueError, match=r"images must be uint8 .*\. Received: int32"):
            use(images, verbose=0)


def test_a_schedule_that_was_interrupted_goes_on_where_it_was(tmp_path):
    """Keras' own callback finds the epochs that are done: the plan is that of the whole training."""
    model = built(MATRIX)
    model.compile("adam")
    plans = []

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            plans.append(model._fitting.plan)
            if epoch == 1 and len(plans) == 2:
                raise KeyboardInterrupt

    options = {"batch_size": 20, "epochs": 3, "verbose": 0}
    backup = lambda: keras.callbacks.BackupAndRestore(tmp_path / "backup")  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        model.fit(IMAGES, LABELS, callbacks=[backup(), Interrupt()], **options)
    model = built(MATRIX)
    model.compile("adam")
    model.fit(IMAGES, LABELS, callbacks=[backup(), Interrupt()], **options)
    assert set(plans) == {(0, 6)}


@pytest.mark.parametrize(
    "labels", [np.array(["cat", "dog"]), np.array([1, 2], object)], ids=["text", "objects"]
)
def test_labels_that_are_no_numbers_are_refused_in_words(labels):
    with pytest.raises(ValueError, match="labels must be integers"):
        check_labels(labels, 10)


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.SGD(1e-3),
        keras.optimizers.SGD(1e-3, gradient_accumulation_steps=2),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-3)),
    ],
    ids=["plain", "gathering", "scaled loss"],
)
def test_steps_are_counted_among_the_values_that_jax_hands_over(optimizer):
    model = built(MATRIX)
    model.compile(optimizer)
    for _ in range(3):
        model.train_on_batch(IMAGES, LABELS)
    values = [np.asarray(variable) for variable in model.optimizer.variables]
    assert model._fitting._steps(([], [], values, [])) == model._fitting._steps() == 3


def test_a_refused_compile_leaves_the_model_as_it_was_compiled():
    model = built(MATRIX)
    model.compile("adam", metrics=[keras.metrics.TopKCategoricalAccuracy(3, name="top3")])
    with pytest.raises(ValueError, match="without a loss trains as the paper does"):
        model.compile("adam", loss="sparse_categorical_crossentropy")
    assert {"loss", "accuracy", "top3"} <= {
        name.removeprefix("scores_") for name in model.fit(IMAGES[:8], LABELS[:8], verbose=0).history
    }


def test_an_hdf5_file_which_could_not_be_read_again_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a \.keras file keeps all of this model"):
        built(MATRIX).save(tmp_path / "model.h5")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("top", [0, -1, 2.0])
def test_so_many_classes_as_are_no_number_are_refused(top):
    model = built(MATRIX)
    model.preprocess, model.class_names, model.raw_shape = Preprocessing(), tuple("abcdefghij"), (28, 28, 1)
    with pytest.raises(ValueError, match="top must be an integer of at least 1"):
        model.classify(IMAGES[0], top=top)


def test_a_keras_file_keeps_what_is_known_of_a_model(tmp_path, monkeypatch):
    model = built(MATRIX)
    model.class_names, model.raw_shape, model.rates = tuple("abcdefghij"), (28, 28, 1), {"conv1/kernel": 0.5}
    metrics = [keras.metrics.TopKCategoricalAccuracy(3, name="top3")]
    model.compile(keras.optimizers.Adam(3e-4), metrics=metrics, steps_per_execution=2)
    model.train_on_batch(IMAGES, LABELS)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.architecture == MATRIX
    assert again.class_names == model.class_names
    assert again.raw_shape == (28, 28, 1)
    assert again.rates == {"conv1/kernel": 0.5}
    np.testing.assert_array_equal(again.predict(IMAGES)["scores"], model.predict(IMAGES)["scores"])
    assert again.classify(IMAGES[0]) == model.classify(IMAGES[0])
    # In parts of what memory holds.
    monkeypatch.setattr(model, "predict_on_batch", lambda images: pytest.fail("all at once"))
    assert len(model.classify(IMAGES)) == len(IMAGES) > 32
    # It goes on learning where it was, optimiser and metrics included.
    assert again.train_on_batch(IMAGES, LABELS) == pytest.approx(model.train_on_batch(IMAGES, LABELS))
    assert "top3" in " ".join(again.evaluate(IMAGES, LABELS, verbose=0, return_dict=True))
    assert again.steps_per_execution == 2


def test_what_only_training_has_is_state_of_the_model_that_is_fitted():
    """Keras' JAX trainer keeps no other: each step would draw the same noise."""
    model = built(AttentionCapsNet(objects=2, object_dim=4, channels=4, hidden=8))
    own = {id(variable) for variable in model.variables}
    weights = [weight.path for weight in model.weights]
    model.compile("adam")
    (seed,) = (variable for variable in model.non_trainable_variables if id(variable) not in own)
    before = np.asarray(seed)
    model.fit(IMAGES, batch_size=20, verbose=0)
    assert (np.asarray(seed) != before).any()
    assert [weight.path for weight in model.weights] == weights


@pytest.mark.parametrize("decoder", [True, False])
def test_pairs_of_classes_are_not_reconstructed_without_their_sources(decoder):
    model = built(DynamicCapsNet(channels=8, primary_types=2, decoder=decoder))
    model.labels_per_image = 2
    refusal = pytest.raises(ValueError, match=r"need each by itself, .* train it with `capszoo train`")
    with refusal if decoder else contextlib.nullcontext():
        model.compile("adam")
