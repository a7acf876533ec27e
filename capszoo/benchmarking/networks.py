"""A preset's network in the forms that are compared, and its steps."""

import dataclasses

import keras
import numpy as np

from capszoo.benchmarking.baseline import MISSING, textbook
from capszoo.layers.routes import routed_layers
from capszoo.models.architecture import RoutesIteratively
from capszoo.routing import cpu
from capszoo.training.run import dtype_policy

# What is measured: the network as users run it, its graph form where that is another one, the graph as XLA compiles it,
# the formulation of open implementations, and the network with a single iteration of routing.
OURS, GRAPH, XLA, OPEN, SINGLE = "capszoo", "graph form", "XLA", "open code", "1 iteration"


@dataclasses.dataclass(frozen=True)
class RandomImages:
    """Of a data set only what networks are built for: its images are random."""

    image_shape: tuple[int, int, int]
    num_classes: int
    labels_per_image: int = 1

    @property
    def preprocessing(self) -> dict:
        return {}


class Network:
    """One form of a recipe's network, with the steps that `capszoo train` and `model.predict_on_batch` make.

    where:
      variant: `OURS`, `GRAPH`, `XLA`, `OPEN` or `SINGLE`, see `variants`.
      precision: the dtype policy; training runs under the recipe's, a loaded model under "float32".

    The optimiser's rate is zero: it does all of its work, and every step computes with the same weights.
    Errors: `ValueError` where the network has no such form.
    """

    def __init__(self, recipe, variant, precision):
        if variant == SINGLE:
            recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, num_iterations=1))
        keras.utils.set_random_seed(0)
        self.recipe, self.variant = recipe, variant
        with dtype_policy(precision):
            model = recipe.build()
            self.objective = recipe.objective(model)
            self.predicting, self.training = (_form(each, variant) for each in (model, self.objective.model))
        # As `capszoo.training.run` compiles, the rate apart.
        self.training.compile(
            keras.optimizers.Adam(0.0, **recipe.train.adam),
            loss=self.objective.losses,
            metrics=self.objective.metrics,
            jit_compile=variant == XLA or keras.backend.backend() == "jax" or recipe.train.xla,
        )
        if variant == XLA:
            self.predicting.compile(jit_compile=True)

    def training_step(self, size):
        """A function that trains on one batch of `size` images."""
        inputs, targets = self.objective.arrange(self._batch(size))
        return self._as_variant(lambda: self.training.train_on_batch(inputs, targets))

    def inference_step(self, size):
        """A function that predicts one batch of `size` images."""
        images = self._batch(size)["images"]
        return self._as_variant(lambda: self.predicting.predict_on_batch(images))

    def _as_variant(self, step):
        """`step`, which routes by the graph in the variants of the graph, however it is traced."""
        if self.variant not in (GRAPH, XLA):
            return step

        def by_graph():
            with cpu.host_calls(False):
                return step()

        return by_graph

    def forget(self):
        """Forgets what was compiled, so that the next steps are compiled for the size of their batch alone."""
        self.training.make_train_function(force=True)
        self.predicting.make_predict_function(force=True)

    def _batch(self, size):
        data, rng = self.recipe.data, np.random.default_rng(0)
        count = data.labels_per_image
        batch = {
            "images": rng.random((size, *data.image_shape), dtype="float32"),
            "labels": rng.integers(0, data.num_classes, (size, count) if count > 1 else size),
        }
        if count > 1:
            batch["sources"] = rng.random((size, count, *data.image_shape), dtype="float32")
        return batch


def _form(model, variant):
    if variant in (GRAPH, XLA):
        # Another model over the same layers, with graphs of its own.
        return keras.Model(model.input, model.output)
    return textbook().twin(model) if variant == OPEN else model


def variants(recipe):
    """The forms that a recipe's network has here, and why it lacks the baseline: `(names, reason or None)`."""
    model = recipe.build()
    names, reason = [OURS], None
    with cpu.host_calls(True):
        if any(layer.routing.compilable for layer in routed_layers(model)) and cpu.enabled():
            names.append(GRAPH)
    if keras.backend.backend() == "tensorflow" and routed_layers(model):
        names.append(XLA)
    if textbook() is None:
        reason = MISSING
    else:
        try:
            textbook().twin(model)
            names.append(OPEN)
        except ValueError as error:
            reason = str(error)
    if recipe.model.has(RoutesIteratively) and recipe.model.num_iterations > 1:
        names.append(SINGLE)
    return names, reason
