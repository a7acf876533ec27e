"""The Keras model that every architecture builds: what it does beside running its layers."""

import math

import keras
from keras import ops

from capszoo.routing.cpu import host_calls


@keras.saving.register_keras_serializable(package="capszoo")
class ImageModel(keras.Model):
    """A functional Keras model of images that says NaN of what is no image, and may route by compiled kernels.

    Every output of an image with a pixel that is NaN or infinite is NaN; other images of the batch are not touched. On
    CPUs a convolution that TensorFlow fuses with its ReLU makes zeros of NaN, and scores would look sure of them.

    Kernels are used in `fit`, `evaluate`, `predict` and their `_on_batch` kin, unless they are compiled with XLA, see
    `capszoo.routing.cpu`. A graph that somebody else makes of the model, for an export for instance, never calls back
    into this process.

    where:
      architecture: the `capszoo.models.architecture.Architecture` that has built it, with the roles that it plays;
        None where none has.
    """

    architecture = None

    def call(self, inputs, training=None, mask=None, **options):
        # Keras looks for `training` in this signature.
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

    def train_step(self, *arguments):
        with host_calls(not self.jit_compile):
            return super().train_step(*arguments)

    def test_step(self, *arguments):
        with host_calls(not self.jit_compile):
            return super().test_step(*arguments)

    def predict_step(self, *arguments):
        with host_calls(not self.jit_compile):
            return super().predict_step(*arguments)


def trainable_parameters(model) -> int:
    """How many numbers of `model` are learnt: statistics of a normalisation or the state of a mask are not."""
    return sum(math.prod(weight.shape) for weight in model.trainable_weights)
