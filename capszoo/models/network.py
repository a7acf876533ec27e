"""The Keras model that every architecture builds: what it does beside running its layers."""

import contextlib
import math
import numbers

import keras
import numpy as np
from keras import ops

from capszoo import config, plugins
from capszoo.data.images import read_pictures
from capszoo.data.preprocessing import grey_levels_to_unit
from capszoo.models.fitting import Fitting, check_images
from capszoo.models.freezing import scale_rates

# What is known of a model beside its layers, and saved with it.
_KNOWN = ("preset", "preprocess", "class_names", "raw_shape", "labels_per_image", "rates")


@keras.saving.register_keras_serializable(package="capszoo")
class ImageModel(keras.Model):
    """A functional Keras model of images: it refuses what is no image, and trains as its paper does.

    `predict`, `fit`, `evaluate` and calls take uint8 as grey levels 0..255, and floats in [0, 1], or standardised ones
    where `preprocess` makes those; see `capszoo.data.checking`. Where values are not known before they are used, as in
    a graph, every output of an image with a pixel that is NaN or infinite is NaN; other images of the batch are not
    touched. On CPUs a convolution that TensorFlow fuses with its ReLU makes zeros of NaN, and scores would look sure
    of them.

    `compile(optimizer)` without a loss is what the paper trains on, decoder and schedules included;
    `fit(images, labels)` then takes integers, see `capszoo.models.targets`.

    where:
      architecture: the `capszoo.models.architecture.Architecture` that has built it, with the roles that it plays;
        None where none has.
      preset, preprocess: what it was loaded as, and what makes its input of raw images; None for a model of neither.
      class_names: of the scores, where they are known.
      raw_shape: `(H, W, C)` of the pictures that `preprocess` takes.
      labels_per_image: classes in one image.
      rates: by paths of weights, what their learning rate is multiplied with.
    """

    architecture = None
    preset = None
    preprocess = None
    class_names = ()
    raw_shape = None
    labels_per_image = 1
    rates = {}  # noqa: RUF012 - replaced, never changed
    _fitting = None

    @property
    def input_spec(self):
        """None: shapes are checked by `__call__`, whose errors say what to do."""

    @input_spec.setter
    def input_spec(self, value):
        pass

    def __call__(self, inputs, *arguments, **options):
        if not (self._fitting and self._fitting.active):
            check_images(self, inputs)
        return super().__call__(inputs, *arguments, **options)

    def call(self, inputs, training=None, mask=None, **options):
        # Keras looks for `training` in this signature.
        if self._fitting and self._fitting.active:
            with self._fitting.answering(False):
                return self._fitting.objective.model(inputs, training=training)
        inputs = keras.tree.map_structure(grey_levels_to_unit, inputs)
        outputs = super().call(inputs, training=training, mask=mask, **options)
        finite = True
        for tensor in keras.tree.flatten(inputs):
            axes = tuple(range(1, len(tensor.shape)))
            finite = ops.logical_and(ops.all(ops.isfinite(ops.cast(tensor, "float32")), axis=axes), finite)

        def marked(output):
            # [B] -> [B, 1, ...]
            of_image = ops.reshape(finite, (-1, *[1] * (len(output.shape) - 1)))
            return ops.where(of_image, output, ops.cast(float("nan"), output.dtype))

        return keras.tree.map_structure(marked, outputs)

    def compile(self, optimizer="rmsprop", loss=None, metrics=None, **options):
        """As in Keras; without a loss the model is trained on what its paper trains it on.

        Errors: `ValueError` for one loss, since there are several outputs.
        """
        as_in_paper = self.architecture is not None and not isinstance(loss, dict)
        # Before anything changes: what was compiled before is trained on after the error.
        if as_in_paper and loss is not None:
            raise ValueError(
                "compile(optimizer) without a loss trains as the paper does. For a loss of your own, name its output: "
                f'loss={{"scores": {loss!r}}}, with targets {{"scores": ...}}; or train '
                f'keras.Model(model.input, model.output["scores"]), on images as model.preprocess makes them. '
                f"Received: loss={loss!r}"
            )
        # Keras keeps the metrics of an earlier `compile` where this one has none.
        self._compile_metrics = None
        self._fitting = Fitting(self) if as_in_paper else None
        if as_in_paper:
            self._fitting.compile(optimizer, metrics, options, super().compile)
            return
        super().compile(optimizer, loss=loss, metrics=metrics, **options)
        scale_rates(self, self.rates)

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        *,
        validation_data=None,
        callbacks=None,
        initial_epoch=0,
        **options,
    ):
        """As in Keras. Errors: `ImageError` and `ValueError` for arrays that are no images and no labels."""
        y = self._checked(x, y)
        if isinstance(validation_data, tuple) and len(validation_data) > 1:
            images, labels, *weights = validation_data
            validation_data = (images, self._checked(images, labels), *weights)
        if self._fitting:
            callbacks = [*keras.tree.flatten(callbacks or []), self._fitting.schedule(initial_epoch)]
        options |= {
            "validation_data": validation_data,
            "callbacks": callbacks,
            "initial_epoch": initial_epoch,
        }
        with self._as_before_an_error():
            return super().fit(x, y, batch_size, epochs, **options)

    def evaluate(self, x=None, y=None, *arguments, **options):
        """As in Keras, of what `compile` has chosen; errors as `fit`."""
        with self._as_before_an_error():
            return super().evaluate(x, self._checked(x, y), *arguments, **options)

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """As in Keras, but for an array of at most one batch without the pipeline of batches and its progress bar.

        That takes 40 ms, whatever the network. Errors: `ImageError` for arrays that are no images.
        """
        check_images(self, x)
        one_batch = isinstance(x, np.ndarray) and 0 < len(x) <= (batch_size or 32)
        if one_batch and steps is None and not callbacks and self._predicts_in_one_step():
            return super().predict_on_batch(x)
        return super().predict(x, batch_size, verbose, steps, callbacks)

    @property
    def non_trainable_variables(self):
        """As in Keras, and what only training has, such as the generator of a bound's samples.

        Keras' JAX trainer keeps no other state from step to step.
        """
        variables = super().non_trainable_variables
        return [*variables, *self._fitting.state] if self._fitting else variables

    def _predicts_in_one_step(self):
        """Whether a batch is one step, of one device."""
        if self.steps_per_execution != 1 or keras.distribution.distribution() is not None:
            return False
        return keras.backend.backend() != "tensorflow" or self.distribute_strategy.num_replicas_in_sync == 1

    def predict_on_batch(self, x):
        """As in Keras. Errors: `ImageError` for arrays that are no images."""
        check_images(self, x)
        return super().predict_on_batch(x)

    def train_on_batch(self, x, y=None, *arguments, **options):
        """As in Keras; errors as `fit`."""
        with self._as_before_an_error():
            return super().train_on_batch(x, self._checked(x, y), *arguments, **options)

    def test_on_batch(self, x, y=None, *arguments, **options):
        """As in Keras; errors as `fit`."""
        with self._as_before_an_error():
            return super().test_on_batch(x, self._checked(x, y), *arguments, **options)

    @contextlib.contextmanager
    def _as_before_an_error(self):
        """After an error inside, such as that of labels refused while a step is traced, training can begin again."""
        try:
            yield
        except Exception:
            # A function whose first trace was broken off may make no variables in the next.
            self.train_function = self.test_function = None
            if keras.backend.backend() == "jax":
                # What the steps before have made.
                self.jax_state_sync()
            raise

    def _purge_model_variables(self, **_):
        """Nothing: Keras' JAX trainer would leave no weights where a step is refused before it takes their memory."""

    def _checked(self, images, labels):
        check_images(self, images)
        return self._fitting.labels(labels) if self._fitting else labels

    def train_step(self, *arguments):
        if self._fitting is None:
            return super().train_step(*arguments)
        arguments = self._fitting.arrange(arguments, training=True)
        with self._fitting.answering(True):
            return super().train_step(*arguments)

    def test_step(self, *arguments):
        if self._fitting is None:
            return super().test_step(*arguments)
        arguments = self._fitting.arrange(arguments, training=False)
        with self._fitting.answering(True):
            return super().test_step(*arguments)

    def classify(self, pictures, top=None, resize=False):
        """What is in pictures: for each, a dict of class names and scores, the highest first.

        where:
          pictures: a path, a PIL image or an array `[H, W, C]`, of grey also `[H, W]`, and the answer is one dict; or a
            list of those or an array `[B, H, W, C]`, and the answer is a list of dicts. Arrays are raw: uint8, or
            floats in [0, 1].
          top: how many classes each dict has, at least 1; None for all.
          resize: scales pictures of another size instead of refusing them.

        Errors: `ValueError` for a network that has no classes, for another `top`, and for what is no picture of its
        shape.

        >>> import capszoo
        >>> model = capszoo.load("dynamic_mnist")
        >>> model.classify("capszoo/data/samples/digits/3_a.png", top=1)  # doctest: +SKIP
        {'3': 0.97}
        """
        if self.preprocess is None or not self.class_names:
            raise ValueError(
                f"a preset that tells classes is needed, see capszoo.load. Received: {self.name}"
            )
        if top is not None and (not isinstance(top, numbers.Integral) or top < 1):
            raise ValueError(f"top must be an integer of at least 1, or None. Received: {top!r}")
        batch, single = read_pictures(pictures, self.raw_shape, resize)
        scores = self.predict(np.asarray(self.preprocess(batch)), verbose=0)["scores"]
        answers = []
        for row in np.asarray(scores):
            best = row.argsort()[::-1][:top].tolist()
            answers.append({self.class_names[k]: float(row[k]) for k in best})
        return answers[0] if single else answers

    def save(self, filepath, *arguments, **options):
        """As in Keras. Errors: `ValueError` for an HDF5 file, of which Keras could not make this class again."""
        if str(filepath).lower().endswith((".h5", ".hdf5")):
            raise ValueError(f"a .keras file keeps all of this model, HDF5 does not. Received: {filepath}")
        super().save(filepath, *arguments, **options)

    def get_config(self):
        known = {name: getattr(self, name) for name in _KNOWN}
        architecture = self.architecture and config.to_mapping(self.architecture)
        known["architecture"] = architecture
        serialised = {name: keras.saving.serialize_keras_object(value) for name, value in known.items()}
        return {**super().get_config(), "capszoo": serialised}

    @classmethod
    def from_config(cls, config_, custom_objects=None):
        """The model of `get_config`."""
        plugins.load()
        config_ = dict(config_)
        serialised = config_.pop("capszoo", {})
        model = super().from_config(config_, custom_objects=custom_objects)
        known = {name: keras.saving.deserialize_keras_object(value) for name, value in serialised.items()}
        architecture = known.pop("architecture", None)
        for name, value in known.items():
            setattr(model, name, tuple(value) if isinstance(value, list) else value)
        model.architecture = architecture and config.parse_section("model", architecture)
        return model

    def get_compile_config(self):
        if self._fitting is None:
            return super().get_compile_config()
        given = {
            "optimizer": self.optimizer,
            "metrics": self._fitting.metrics,
            "options": self._fitting.options,
        }
        return {"as_in_paper": True, **keras.saving.serialize_keras_object(given)}

    def compile_from_config(self, config_):
        config_ = dict(config_)
        as_in_paper = config_.pop("as_in_paper", False)
        given = keras.saving.deserialize_keras_object(config_)
        options = given.pop("options", {}) if as_in_paper else {}
        self.compile(**given, **options)
        self.optimizer.build(self.trainable_variables)


def trainable_parameters(model) -> int:
    """How many numbers of `model` are learnt: statistics of a normalisation or the state of a mask are not."""
    return sum(math.prod(weight.shape) for weight in model.trainable_weights)
