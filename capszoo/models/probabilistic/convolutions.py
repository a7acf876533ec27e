"""The convolutions with which the inference network of Smith et al. 2020 begins, and our autoencoder."""

import keras

STRIDES = (2, 2, 1, 1)


def convolutions(images, channels):
    """`images [B, H, W, C]` -> `[B, ceil(H / 4), ceil(W / 4), channels]`: four of 3x3, of strides 2, 2, 1 and 1, ELU.

    Source: Smith et al. 2020, section 4 and appendix B. Differs from the paper: it does not name the padding ("same").
    """
    features = images
    for number, strides in enumerate(STRIDES, start=1):
        features = keras.layers.Conv2D(
            channels, 3, strides, padding="same", activation="elu", name=f"conv{number}"
        )(features)
    return features
