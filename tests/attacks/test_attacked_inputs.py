"""What a model is asked: pixels that are no numbers are answered with NaN, and other images are not touched."""

import numpy as np
import pytest

# By name only: many inputs take minutes.
pytestmark = [pytest.mark.attack, pytest.mark.slow]


@pytest.mark.parametrize("preset", ["dynamic_mnist", "kernel_mnist"])
def test_pixels_that_are_no_numbers(attacks, preset):
    import capszoo

    model = capszoo.load(preset)
    images = attacks.rng.random((8, *model.input_shape[1:])).astype("float32")
    expected = model.predict_on_batch(images)["scores"]
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

            attacks(
                f"{value} in image {place}",
                lambda broken=broken: model.predict_on_batch(broken)["scores"],
                harmless=honest,
            )
