"""Whether a picture is dark on light where a network expects light on dark."""

import numpy as np


def dark_on_light(picture):
    """Whether most of the rim of a picture `[H, W, C]` in [0, 1] is lighter than the middle of the picture's range.

    A drawn digit leaves the rim to the background. A picture without contrast, of less than a tenth, is neither.
    """
    picture = np.asarray(picture)
    darkest, lightest = picture.min(), picture.max()
    if lightest - darkest < 0.1:
        return False
    rim = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
    return bool(np.median(rim) > (darkest + lightest) / 2)
