"""What a model is trained on: the contract between an architecture and the training loop."""

import dataclasses
from collections.abc import Callable

import keras
from keras import ops


@dataclasses.dataclass(frozen=True)
class Objective:
    """A training model and what it is asked for.

    where:
      model: a keras.Model that shares every layer with the inference model and may take training-only inputs.
      losses: one loss per output name of `model`; they are added.
      metrics: metric functions per output name.
      arrange: turns a batch of a data set (`images`, `labels`, ...) into `(inputs, targets)` of `model`. In training
        the batch may carry `progress`, the share of the steps that lie behind, in [0, 1]: losses that change with
        the training take it from there, so that a resumed run needs no state of theirs.
      begin: `begin(split, fresh)` before the first step of a run, with its training images and the paths of the
        inference model's weights that are still random; None where there is nothing to do.
    """

    model: keras.Model
    losses: dict[str, keras.losses.Loss]
    metrics: dict[str, list]
    arrange: Callable[[dict], tuple[dict, dict]]
    begin: Callable | None = None

    def compile(self, optimizer, batch, jit_compile=False):
        """Compiles `model` for `train_on_batch`, on batches such as `batch`, which `arrange` takes.

        Keras would make the variables of losses and metrics in the first step, and TensorFlow traces a step again
        that has made any. Here a comparison with zeros makes them, so that a run starts in half the time.
        """
        model = self.model
        model.compile(optimizer, loss=self.losses, metrics=self.metrics, jit_compile=jit_compile)
        model.optimizer.build(model.trainable_variables)
        inputs, targets = self.arrange(batch)
        size = len(keras.tree.flatten(inputs)[0])
        zeros = keras.tree.map_structure(
            lambda output: ops.zeros((size, *output.shape[1:]), output.dtype), model.output
        )
        model.compute_loss(inputs, targets, zeros)
        model.compute_metrics(inputs, targets, zeros)
        model.reset_metrics()


@keras.saving.register_keras_serializable(package="capszoo")
def set_accuracy(targets, scores):
    """1 where the classes of an image are exactly its highest scores, else 0: `[B, O]`, `[B, O]` -> `[B]`.

    For one class per image this is accuracy; with two, both must be right (Sabour et al. 2017, section 6). A tie
    between a class of the image and another one counts as wrong.
    """
    present = ops.cast(targets, "bool")
    lowest_present = ops.min(ops.where(present, scores, float("inf")), axis=-1)
    highest_absent = ops.max(ops.where(present, float("-inf"), scores), axis=-1)
    return ops.cast(lowest_present > highest_absent, "float32")
