"""The Keras model whose capsules may route by a compiled kernel while it trains and predicts."""

import keras

from capszoo.routing.cpu import host_calls


@keras.saving.register_keras_serializable(package="capszoo")
class CapsuleNetwork(keras.Model):
    """A functional Keras model that allows fused routing in its own steps, see `capszoo.routing.cpu`.

    That is in `fit`, `evaluate`, `predict` and their `_on_batch` kin, unless they are compiled with XLA. A graph that
    somebody else makes of the model, for an export for instance, never calls back into this process.
    """

    def train_step(self, *arguments):
        with host_calls(not self.jit_compile):
            return super().train_step(*arguments)

    def test_step(self, *arguments):
        with host_calls(not self.jit_compile):
            return super().test_step(*arguments)

    def predict_step(self, *arguments):
        with host_calls(not self.jit_compile):
            return super().predict_step(*arguments)
