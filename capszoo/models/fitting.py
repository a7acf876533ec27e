"""Plain Keras training: what `compile`, `fit` and their kin of an `ImageModel` do with images and labels."""

import contextlib
import warnings

import keras
import numpy as np
from keras import ops

from capszoo.data.checking import ImageError, check_shape, check_values
from capszoo.data.preprocessing import grey_levels_to_unit
from capszoo.models.class_metrics import OfClasses, share_of_right
from capszoo.models.freezing import scale_rates, steps_of
from capszoo.models.targets import check_labels, label_tensors


class Fitting:
    """An inference model that is compiled to be trained on the objective of its architecture.

    where:
      model: the `capszoo.models.network.ImageModel`.
      objective: of its architecture.
      state: variables that only the objective's model has; none of them is learned.

    `fit` traces the step of the model itself; inside `answering(True)` the model answers as the objective's model does.
    """

    def __init__(self, model):
        self.model = model
        self.objective = model.architecture.objective(model, model.labels_per_image)
        if self.objective.begin is not None:
            raise ValueError(
                f"{model.name} begins its training with something of the training images, which `fit` does not do; "
                "train it with `capszoo train`."
            )
        own = {id(variable) for variable in model.variables}
        trained = self.objective.model.variables
        self.state = [variable for variable in trained if id(variable) not in own]
        self.active = False
        self.metrics, self.options = None, {}
        # Steps of the optimiser at which `fit` began and at which it will end, where that is known.
        self.plan = None

    def compile(self, optimizer, metrics, options, compile_model):
        """Compiles with the losses and metrics of the objective, and `metrics` of the scores beside them."""
        self.metrics, self.options = metrics, dict(options)
        of_output = {
            output: [share_of_right(function, "accuracy") for function in functions]
            for output, functions in self.objective.metrics.items()
        }
        if weighted := options.get("weighted_metrics"):
            of_scores = self._of_classes("weighted_metrics", weighted)
            options = {**options, "weighted_metrics": {"scores": of_scores}}
        if metrics:
            of_scores = self._of_classes("metrics", metrics)
            there = of_output.get("scores", [])
            of_output["scores"] = there + [
                each for each in of_scores if each.name not in [metric.name for metric in there]
            ]
        compile_model(optimizer, loss=self.objective.losses, metrics=of_output or None, **options)
        scale_rates(self.model, self.model.rates)
        shape, k = self.model.input_shape[1:], self.model.labels_per_image
        labels = np.zeros((1,) if k == 1 else (1, k), "int64")
        self.objective.build(self.model, {"images": np.zeros((1, *shape), "float32"), "labels": labels})

    def _of_classes(self, option, metrics):
        """Metrics of the user's as metrics of scores. Errors: `ValueError` for a dict, of which no output is known."""
        if isinstance(metrics, dict):
            raise ValueError(f"{option} must be a list, of the scores. Received: {metrics}")
        return [OfClasses(each, self.model.labels_per_image) for each in metrics]

    @property
    def classifies(self):
        """Whether labels are needed, and looked at."""
        from capszoo.models.architecture import Classifies

        return self.model.architecture.has(Classifies)

    @contextlib.contextmanager
    def answering(self, active):
        """Inside, the model takes the inputs and gives the outputs of the objective's model, or again its own."""
        before, self.active = self.active, active
        try:
            yield
        finally:
            self.active = before

    def arrange(self, arguments, training):
        """The arguments of Keras' `train_step` or `test_step` with inputs and targets for images and labels."""
        *state, data = arguments
        images, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        # Alone, in a list or in a dict, as `predict` takes them.
        (images,) = map(ops.convert_to_tensor, keras.tree.flatten(images))
        batch, valid = {"images": grey_levels_to_unit(images)}, True
        if self.classifies:
            if labels is None:
                raise ValueError("labels are needed: fit(images, labels). Received: None")
            if isinstance(labels, dict):
                raise ValueError(f"labels must be one array. Received: a dict of {', '.join(labels)}")
            count = self.model.output["scores"].shape[-1]
            batch["labels"], valid = label_tensors(labels, count, self.model.labels_per_image)
        if training and self.objective.scheduled and self.plan:
            start, end = self.plan
            progress = (ops.cast(self._steps(*state), "float32") - start) / max(1, end - start)
            batch["progress"] = ops.clip(progress, 0.0, 1.0)
        inputs, targets = self.objective.arrange(batch)
        if "scores" in targets:
            # What is no label makes a loss that is no number, instead of one that looks like success.
            valid = ops.expand_dims(valid, -1)
            targets["scores"] = ops.where(valid, targets["scores"], float("nan"))
        return *state, (inputs, targets) if weights is None else (inputs, targets, weights)

    def _steps(self, state=None):
        """How many steps were taken; on JAX `state` has the values of the optimiser's variables."""
        steps = steps_of(self.model.optimizer)
        if state is None:
            return steps
        return next(
            value
            for variable, value in zip(self.model.optimizer.variables, state[2], strict=True)
            if variable is steps
        )

    def schedule(self, initial_epoch):
        """A callback that tells the objective when `fit` will end; it warns where that is not known."""
        # The plan is part of the graph, and so is that there is none.
        if self.objective.scheduled:
            self.model.train_function = None
        self.plan = None
        return _Plan(self, initial_epoch)

    def labels(self, labels):
        """`labels` checked, where they are an array; a data set's are looked at as they come."""
        known = isinstance(labels, np.ndarray | list | tuple)
        if not known or not self.classifies:
            return labels
        return check_labels(labels, self.model.output["scores"].shape[-1], self.model.labels_per_image)


class _Plan(keras.callbacks.Callback):
    """Counts the steps that `fit` is going to take, those of the epochs before `initial_epoch` among them."""

    def __init__(self, fitting, initial_epoch):
        super().__init__()
        self.fitting, self.initial_epoch = fitting, initial_epoch

    def on_train_begin(self, logs=None):
        steps = self.params.get("steps")
        if steps:
            now = int(ops.convert_to_numpy(steps_of(self.fitting.model.optimizer)))
            epochs = self.params["epochs"]
            # Those that Keras' BackupAndRestore has found done belong to the plan.
            done = self.model._initial_epoch or self.initial_epoch
            end = now + steps * (epochs - done)
            self.fitting.plan = end - steps * epochs, end
        elif self.fitting.objective.scheduled:
            warnings.warn(
                "how many steps an epoch has is not known, so that the loss is that of the end of training from the "
                "first step on; give steps_per_epoch.",
                stacklevel=2,
            )


def check_images(model, images):
    """Errors: `ImageError` unless arrays or tensors, alone or in a list or dict, are what `model` takes.

    Anything else is not looked at, nor is what a model of several inputs takes. Values are looked at where they are
    known, and where it is known what `model` takes.
    """
    if not isinstance(model.input, dict):
        for array in keras.tree.flatten(images):
            _check_array(model, array)


def _check_array(model, images):
    shape = getattr(images, "shape", None)
    # A stream may not know its rank.
    if shape is None or getattr(shape, "rank", 0) is None:
        return
    check_shape(shape, model.input_shape[1:])
    # Some layers have no form for no image, and Keras' loops none for no batch.
    if shape[0] == 0:
        raise ImageError(f"images must be at least one. Received: {list(shape)}")
    values = None if model.preprocess is None else _values(images)
    if values is not None:
        check_values(values, model.preprocess.standardise)


def _values(images):
    """An array or a tensor as an array; None for a tensor without values yet, as where a graph is traced."""
    if isinstance(images, np.ndarray):
        return images
    if isinstance(images, keras.KerasTensor) or not ops.is_tensor(images):
        return None
    try:
        return np.asarray(images)
    except (NotImplementedError, TypeError, AttributeError):
        return None
