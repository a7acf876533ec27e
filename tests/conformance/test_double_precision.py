"""Networks whose `keras.config.floatx` is float64, as programs set it that check gradients."""

import keras
import numpy as np
import pytest

from capszoo.models import (
    AttentionCapsNet,
    KernelCapsNet,
    StackedCapsuleAutoencoder,
    VariationalAutoencoder,
)

SMALL = {"channels": 4, "primary_types": 2, "conv1_types": 2, "conv2_types": 2}


@pytest.fixture(autouse=True)
def double():
    before = keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy(before)


@pytest.mark.parametrize(
    "architecture",
    [
        KernelCapsNet(**SMALL),
        AttentionCapsNet(objects=2, hidden=8),
        pytest.param(VariationalAutoencoder(), marks=pytest.mark.slow),
        pytest.param(StackedCapsuleAutoencoder(objects=3, parts=3), marks=pytest.mark.slow),
    ],
    ids=lambda architecture: architecture.section_name,
)
def test_networks_are_fitted_in_double_precision(architecture):
    """What draws noise and what pads has the type of its layer, and not that of `floatx`."""
    model = architecture.build((32, 32, 1), 4)
    model.compile("adam")
    images = np.random.default_rng(0).uniform(size=(4, 32, 32, 1))
    assert np.isfinite(model.fit(images, np.arange(4), verbose=0).history["loss"]).all()
