"""Where in the image the capsules of a grid look, and where in it a pixel lies."""

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable(package="capszoo")
class CoordinateChannels(keras.layers.Layer):
    """Images `[B, H, W, C + 2]` of `[B, H, W, C]`: the last channels say which row and column a pixel is in.

    Rows and columns run from -1 to 1. Errors: `ValueError` for images without a static size.
    Source: Liu et al. 2018, "An intriguing failing of convolutional neural networks and the CoordConv solution".
    """

    def build(self, images_shape):
        if None in images_shape[1:3]:
            raise ValueError(f"the images must have a static size. Received: {tuple(images_shape)}")
        rows, columns = (np.linspace(-1.0, 1.0, side, dtype="float32") for side in images_shape[1:3])
        self.coordinates = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1)[None]

    def call(self, images):
        # Grey levels have no negative numbers.
        images = ops.cast(images, self.compute_dtype)
        coordinates = ops.cast(self.coordinates, images.dtype)
        return ops.concatenate([images, ops.repeat(coordinates, ops.shape(images)[0], axis=0)], axis=-1)


def receptive_field_centres(side, windows):
    """Distance of the centres of receptive fields from the centre of the image, in pixels, along one axis.

    where:
      side: pixels of the image along the axis.
      windows: `(kernel_size, strides)` of every layer without padding, from the image upwards.

    Returns a tuple of floats, one for each position of the last layer's grid. The outermost are not symmetric where
    a stride leaves pixels over.
    Errors: `ValueError` for an image too small for the windows.
    Source: Hinton et al. 2018, section 4 (coordinate addition).
    """
    positions, spacing, first = side, 1, 0.0
    for kernel_size, strides in windows:
        if positions < kernel_size:
            raise ValueError(f"an image of {side} pixels is too small for the windows {windows}.")
        positions = (positions - kernel_size) // strides + 1
        first += spacing * (kernel_size - 1) / 2
        spacing *= strides
    return tuple(first + spacing * position - (side - 1) / 2 for position in range(positions))
