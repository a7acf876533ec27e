"""What makes few capsules tell images apart, and the other terms of a stacked capsule autoencoder's loss.

All are losses of outputs alone: targets of the same shape are not looked at.
"""

import keras
from keras import ops

# Under shares, so that one of 0 has a logarithm.
LEAST_SHARE = 1e-8


@keras.saving.register_keras_serializable(package="capszoo")
class NegativeLogDensity(keras.losses.Loss):
    """Minus an output that is log-densities `[B, ...]`, in nats, added up for each image, `[B]`.

    Source: Kosiorek et al. 2019, section 2.4.
    """

    def __init__(self, name="negative_log_density", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, _, densities):
        return -ops.sum(densities, axis=tuple(range(1, len(densities.shape))))


@keras.saving.register_keras_serializable(package="capszoo")
class SquaredOutput(keras.losses.Loss):
    """weight / 2 times the sum of squares of an output `[B, ...]`, for each image, `[B]`.

    Source: the authors' code of Kosiorek et al. 2019.
    """

    def __init__(self, weight=1.0, name="squared_output", **kwargs):
        super().__init__(name=name, **kwargs)
        self.weight = weight

    def call(self, _, values):
        return self.weight / 2 * ops.sum(ops.square(values), axis=tuple(range(1, len(values.shape))))

    def get_config(self):
        return {**super().get_config(), "weight": self.weight}


@keras.saving.register_keras_serializable(package="capszoo")
class PresenceSparsity(keras.losses.Loss):
    """Each image has its share of the objects, and each object its share of the images.

        loss_b = within (sum over k of a_bk - K / C)^2 + between / K * sum over k of (sum over b of a_bk - B / C)^2

    where:
      a: presences `[B, K]`, in [0, 1]; C: `classes`, how many kinds of images there are.
      loss: `[B]`; the second term is the same for each image of the batch.

    Errors: `ValueError` for fewer classes than one.
    Source: Kosiorek et al. 2019, section 2.4, prior sparsity; weights from the authors' script for MNIST.
    """

    of_whole_batch = True

    def __init__(self, classes=10, within=2.0, between=0.35, name="presence_sparsity", **kwargs):
        super().__init__(name=name, **kwargs)
        if classes < 1:
            raise ValueError(f"classes must be at least 1. Received: {classes}")
        self.classes, self.within, self.between = classes, within, between

    def call(self, _, presence):
        images = ops.cast(ops.shape(presence)[0], presence.dtype)
        in_image = ops.square(ops.sum(presence, axis=1) - presence.shape[1] / self.classes)
        of_object = ops.square(ops.sum(presence, axis=0) - images / self.classes)
        return self.within * in_image + self.between * ops.mean(of_object)

    def get_config(self):
        return {
            **super().get_config(),
            "classes": self.classes,
            "within": self.within,
            "between": self.between,
        }


@keras.saving.register_keras_serializable(package="capszoo")
class ExplanationSparsity(keras.losses.Loss):
    """Few objects explain an image, and all of them explain some: entropies of what each explains.

        loss_b = within H(e_bk / sum over k of e_bk) - between H(sum over b of e_bk / sum over b and k of e_bk)

    where:
      e: `[B, K]`, at least 0, how much of an image each object explains; H: the entropy over k, in nats.
      loss: `[B]`; the second term is the same for each image of the batch.

    Source: Kosiorek et al. 2019, section 2.4, posterior sparsity; weights from the authors' script for MNIST.
    """

    of_whole_batch = True

    def __init__(self, within=0.7, between=0.2, name="explanation_sparsity", **kwargs):
        super().__init__(name=name, **kwargs)
        self.within, self.between = within, between

    def call(self, _, explained):
        return self.within * _entropy(explained) - self.between * _entropy(ops.sum(explained, axis=0))

    def get_config(self):
        return {**super().get_config(), "within": self.within, "between": self.between}


def _entropy(amounts):
    """Of the shares that `amounts[..., K]` are of their sum: `[...]`, in nats."""
    shares = amounts / (ops.sum(amounts, axis=-1, keepdims=True) + LEAST_SHARE)
    return -ops.sum(shares * ops.log(shares + LEAST_SHARE), axis=-1)
