"""What a model is trained on: the contract between an architecture and the training loop."""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
from keras import ops


@dataclasses.dataclass(frozen=True)
class Objective:
    """A training model and what it is asked for.

    where:
      model: a keras.Model that shares every layer with the inference model and may take training-only inputs.
      losses: one loss per output name of `model`; they are added.
      metrics: metric functions per output name.
      arrange: turns a batch of a data set (`images`, `labels`, ...), arrays or the tensors of a graph, into
        `(inputs, targets)` of `model`. In training
        the batch may carry `progress`, the share of the steps that lie behind, in [0, 1]: losses that change with
        the training take it from there, so that a resumed run needs no state of theirs.
      begin: `begin(split, fresh)` before the first step of a run, with its training images and the paths of the
        inference model's weights that are still random; None where there is nothing to do.
      scheduled: whether `arrange` looks at `progress`.
    """

    model: keras.Model
    losses: dict[str, keras.losses.Loss]
    metrics: dict[str, list]
    arrange: Callable[[dict], tuple[dict, dict]]
    begin: Callable | None = None
    scheduled: bool = False

    def compile(self, optimizer, batch, jit_compile=False):
        """Compiles `model` for `train_on_batch`, on batches such as `batch`, which `arrange` takes.

        Keras would make the variables of losses and metrics in the first step, and TensorFlow traces a step again
        that has made any. Here a comparison with zeros makes them, so that a run starts in half the time.
        """
        model = self.model
        model.compile(optimizer, loss=self.losses, metrics=self.metrics, jit_compile=jit_compile)
        model.optimizer.build(model.trainable_variables)
        self.build(model, batch)

    def build(self, compiled, batch):
        """Makes the variables of losses and metrics of `compiled`, which has been compiled with those of `model`."""
        inputs, targets = self.arrange(batch)
        size = len(keras.tree.flatten(inputs)[0])
        zeros = keras.tree.map_structure(
            lambda output: ops.zeros((size, *output.shape[1:]), output.dtype), self.model.output
        )
        compiled.compute_loss(inputs, targets, zeros)
        compiled.compute_metrics(inputs, targets, zeros)
        compiled.reset_metrics()


def class_targets(labels, num_classes, labels_per_image=1):
    """One-hot rows `[B, k, O]` of k labels `[B]` or `[B, k]` of each image, and their sum `[B, O]`.

    Of arrays they are arrays, of the tensors of a graph tensors: a model takes no mixture of both.
    """
    if isinstance(labels, np.ndarray):
        rows = np.eye(num_classes, dtype="float32")[labels.reshape(len(labels), labels_per_image)]
    else:
        rows = ops.one_hot(ops.reshape(labels, (-1, labels_per_image)), num_classes, dtype="float32")
    return rows, sum(rows[:, place] for place in range(labels_per_image))


@keras.saving.register_keras_serializable(package="capszoo")
def set_accuracy(targets, scores):
    """1 where the classes of an image are exactly its highest scores, else 0: `[B, O]`, `[B, O]` -> `[B]`.

    For one class per image this is accuracy; with two, both must be right (Sabour et al. 2017, section 6). A tie
    between a class of the image and another one counts as wrong, and so does a target that is NaN.
    """
    targets = ops.cast(targets, scores.dtype)
    present = targets > 0
    lowest_present = ops.min(ops.where(present, scores, float("inf")), axis=-1)
    highest_absent = ops.max(ops.where(present, float("-inf"), scores), axis=-1)
    known = ops.logical_not(ops.any(ops.isnan(targets), axis=-1))
    right = ops.logical_and(lowest_present > highest_absent, known)
    return ops.cast(right, "float32")
