"""What every test may rely on: TensorFlow as the backend, silent logs, fixed seeds, `tests/` on the import path."""

import os
import random
import sys
from pathlib import Path

# Before anything imports Keras or TensorFlow.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def seeds():
    """The same random numbers in every test, whichever tests run before it."""
    random.seed(0)
    np.random.seed(0)
    # Tests that need no Keras need not wait for it.
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(0)


@pytest.fixture(scope="session")
def tiny_model():
    """A small untrained capsule network for 28x28 digits. Shared: a test that trains builds its own."""
    import keras

    from capszoo.models import DynamicCapsNet

    keras.utils.set_random_seed(0)
    return DynamicCapsNet(channels=16, primary_types=4).build((28, 28, 1), 10)
