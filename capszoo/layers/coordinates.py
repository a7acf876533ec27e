"""Where in the image the capsules of a grid look."""


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
