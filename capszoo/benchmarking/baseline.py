"""The formulation of open implementations, where the backend has it."""

import keras

MISSING = "the form of open code is written in TensorFlow and needs that backend"


def textbook():
    """The module `capszoo.benchmarking.textbook`; None on another backend than TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        return None
    from capszoo.benchmarking import textbook

    return textbook
