"""Batch normalisation of averaged weights: its means and variances are those of what these weights make of images."""

import keras

# Batches of training images that they are measured on.
BATCHES = 32


def measure_normalisations(model, batches):
    """Gives every batch normalisation in `model` the means over `batches` of each batch's mean and variance.

    where:
      batches: images `[B, H, W, C]`, one array after the other.

    Statistics that were gathered while other weights were trained belong to those: at a high learning rate a network
    with the average of its weights and their statistics may be no better than a guess. Frozen layers keep theirs.
    Source: Izmailov et al. 2018, "Averaging weights leads to wider optima and better generalization", section 3.2.
    """
    layers = batch_normalisations(model)
    momenta = [layer.momentum for layer in layers]
    try:
        for number, images in enumerate(batches):
            for layer in layers:
                # Of so many batches, each then counts the same.
                layer.momentum = number / (number + 1)
            model(images, training=True)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum


def batch_normalisations(model):
    """The batch normalisations in `model`, those inside of other layers too."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)]
