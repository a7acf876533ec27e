"""A convolution of images that have another number of channels than those it was trained on.

    K'_c = sum_k K_k / C'

where K_k is the kernel's part of channel k and C' how many channels there are now. Images that are alike in all their
channels then become what such images became before: a single picture is to a network of stereo pairs a pair without
depth, and a colour one to a network of grey pictures the mean of its channels.
Source: the collection timm, which so adapts kernels of colour pictures to grey ones.
"""

import keras
import numpy as np


def image_kernels(model) -> set[str]:
    """The paths of the kernels of convolutions whose input are the images that `model` takes."""
    convolutions = (layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D))
    return {layer.kernel.path for layer in convolutions if layer.input is model.inputs[0]}


def is_for_channels(kernel, other) -> bool:
    """Whether two shapes of kernels `(height, width, channels, filters)` are equal but for the channels."""
    return len(kernel) == len(other) == 4 and (*kernel[:2], kernel[3]) == (*other[:2], other[3])


def for_channels(kernel, channels: int):
    """`kernel [height, width, channels, filters]` for images of `channels` channels."""
    return np.repeat(kernel.sum(axis=2, keepdims=True) / channels, channels, axis=2)
