import numpy as np
import pytest

from capszoo.data.polarity import dark_on_light
from capszoo.data.samples import digits


@pytest.mark.parametrize("contrast", [1.0, 0.3])
def test_drawn_digits_are_light_on_dark_and_their_inverses_are_not(contrast):
    for image in digits()[0]:
        grey = 0.5 + contrast * (image - 0.5)
        assert not dark_on_light(grey)
        assert dark_on_light(1 - grey)


def test_a_picture_without_contrast_is_neither():
    for level in (0.0, 1.0):
        assert not dark_on_light(np.full((5, 5, 1), level))
