"""Mixup: training on mixtures of two images, which are asked for the same mixture of their targets."""

import keras
import numpy as np

from capszoo.config import ConfigError


def mix(inputs, targets, alpha: float, rng: np.random.Generator):
    """What a training model is given and asked for, `(inputs, targets)`, with another image of the batch mixed in.

        x_i <- l_i x_i + (1 - l_i) x_j,   l_i ~ Beta(alpha, alpha)                  # section 2

    where:
      x: every array `[B, ...]` of `inputs` and of `targets`: images, one-hot labels, what is to be reconstructed.
      j: the image at i's place in a permutation of the batch; i and j may be the same.
      alpha: positive; the larger, the nearer mixtures are to halves.

    For a loss that is linear in its targets, as the margin loss, the spread loss and cross-entropy are, mixed targets
    give the mixture of both images' losses. A decoder is given the poses of both classes, each by its share.

    Errors: `ConfigError` for arrays of whole numbers, which have no mixtures.
    Source: H. Zhang, M. Cisse, Y. Dauphin, D. Lopez-Paz 2018, "mixup: Beyond Empirical Risk Minimization".
    Differs from `keras.layers.MixUp`: the same rng gives the same mixtures, so that a resumed run sees them again.
    """
    arrays = keras.tree.flatten((inputs, targets))
    if not all(np.issubdtype(np.asarray(array).dtype, np.floating) for array in arrays):
        raise ConfigError("train.mixup: targets that are no one-hot labels cannot be mixed.")
    size = len(arrays[0])
    share, other = rng.beta(alpha, alpha, size).astype("float32"), rng.permutation(size)

    def mixed(array):
        own = share.reshape(size, *[1] * (np.ndim(array) - 1))
        return own * array + (1 - own) * array[other]

    return keras.tree.map_structure(mixed, (inputs, targets))
