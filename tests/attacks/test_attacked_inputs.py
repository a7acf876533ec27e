"""What a model is asked: images that are none are refused; where a graph cannot, they alone are answered with NaN."""

import numpy as np
import pytest
import tensorflow as tf

from capszoo.data.checking import ImageError

# By name only: many inputs take minutes.
pytestmark = [pytest.mark.attack, pytest.mark.slow]


@pytest.mark.parametrize("preset", ["dynamic_mnist", "kernel_mnist"])
def test_pixels_that_are_no_numbers(attacks, preset):
    import capszoo

    model = capszoo.load(preset)
    images = attacks.rng.random((8, *model.input_shape[1:])).astype("float32")
    graph = tf.function(lambda images: model(images, training=False)["scores"], autograph=False)
    expected = graph(images).numpy()
    for value in (np.nan, np.inf, -np.inf, 3e38):
        for place in range(8):
            broken = images.copy()
            broken[place].flat[int(attacks.rng.integers(broken[place].size))] = value

            def honest(scores, place=place, value=value):
                others = np.delete(scores, place, 0)
                own = np.isnan(scores[place]).all() or (
                    np.isfinite(value) and (scores[place] <= 1 + 1e-6).all()
                )
                return own and np.allclose(others, np.delete(expected, place, 0), atol=1e-5)

            what = f"{value} in image {place}"
            attacks(what, lambda broken=broken: model.predict_on_batch(broken), ImageError)
            attacks(f"{what}, in a graph", lambda broken=broken: graph(broken).numpy(), harmless=honest)
