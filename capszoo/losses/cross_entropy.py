"""Cross-entropy of capsules' activations."""

import keras
import numpy as np
from keras import ops

from capszoo.losses.shapes import require_shape

# The least and the greatest activation whose logit a float32 can tell: logits of -87 and 17.
LEAST, GREATEST = float(np.finfo("float32").tiny), 1.0 - 2.0**-24


def _precise(shares):
    """`shares` in float32 at least: in half precision `LEAST` may be zero, and `GREATEST` is one."""
    return ops.cast(shares, keras.backend.result_type(shares.dtype, "float32"))


@keras.saving.register_keras_serializable(package="capszoo")
class ActivationCrossEntropy(keras.losses.Loss):
    """Cross-entropy of a softmax over the logits of activations.

        loss = -log( exp(x_t) / sum_i exp(x_i) ),   x = log(a / (1 - a))

    where:
      a: activations `[B, O]`, in [0, 1]; as float32 has them, from 1.2e-38 to 1 - 6e-8. What is beyond is clipped.
      t: the right class, in one-hot targets `[B, O]`.
      loss: `[B]`; Keras averages it over the batch.

    Errors: `ValueError` for targets of another shape than the activations.
    Source: Hinton et al. 2018, Table 1, which names the loss "CrossEnt" without saying of what; x is what the
    logistic function makes the activation of.
    """

    def __init__(self, name="activation_cross_entropy", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, targets, activations):
        require_shape(targets, activations)
        activations = ops.clip(_precise(activations), LEAST, GREATEST)
        logits = ops.log(activations) - ops.log(1.0 - activations)
        return keras.losses.categorical_crossentropy(targets, logits, from_logits=True)


@keras.saving.register_keras_serializable(package="capszoo")
class ScoresLogLikelihood(keras.losses.Loss):
    """Minus the logarithm of the right class's score.

        loss = -log(a_t)

    where:
      a: scores `[B, O]`, in [0, 1], that sum to one; below 1.2e-38 they are clipped.
      t: the right class, in one-hot targets `[B, O]`.
      loss: `[B]`.

    Errors: `ValueError` for targets of another shape than the scores.
    Keras' own of scores clips them at 1e-7: an image that is wrong for sure would teach nothing.
    """

    def __init__(self, name="scores_log_likelihood", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, targets, scores):
        require_shape(targets, scores)
        scores = ops.maximum(_precise(scores), LEAST)
        return -ops.sum(ops.cast(targets, scores.dtype) * ops.log(scores), axis=-1)


@keras.saving.register_keras_serializable(package="capszoo")
class SoftmaxOfActivations(keras.losses.Loss):
    """Cross-entropy of a softmax over activations themselves, as if they were logits.

        loss = -log( exp(a_t) / sum_i exp(a_i) )

    where:
      a: activations `[B, O]`, in [0, 1].
      t: the right class, in one-hot targets `[B, O]`.
      loss: `[B]`, at least log(1 + (O - 1) / e), however good the network.

    Errors: `ValueError` for targets of another shape than the activations.
    Source: the code of De Sousa Ribeiro, Leontidis and Kollias 2020.
    """

    def __init__(self, name="softmax_of_activations", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, targets, activations):
        require_shape(targets, activations)
        # Not Keras' own with `from_logits`: of what a logistic function has made in a graph of TensorFlow that takes
        # the function's argument.
        return -ops.sum(targets * ops.log_softmax(activations, axis=-1), axis=-1)
