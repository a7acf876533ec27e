"""Layers whose outputs are float32 under every dtype policy."""

import keras


def float32_symbols(shapes):
    """A structure of symbolic float32 tensors of these shapes."""
    return keras.tree.map_shape_structure(lambda shape: keras.KerasTensor(shape, dtype="float32"), shapes)


class Float32Outputs:
    """A layer that says the shapes of its outputs with `compute_output_shape`: Keras would give them its own dtype."""

    def compute_output_spec(self, inputs, **keywords):
        return float32_symbols(self.compute_output_shape(inputs.shape))


def convolved(size, kernel_size, strides, padding):
    """How many positions an axis of `size` has after a convolution; None where that is not known.

    Errors: `ValueError` for a window that is larger, without padding.
    """
    if size is None:
        return None
    if padding == "valid" and size < kernel_size:
        raise ValueError(f"a window of {kernel_size} needs as many positions at least. Received: {size}")
    return -(-size // strides) if padding == "same" else (size - kernel_size) // strides + 1
