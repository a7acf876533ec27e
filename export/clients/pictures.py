"""Pictures as what a network takes: pip install numpy pillow."""

import numpy as np
from PIL import Image

MODES = {1: "L", 2: "L", 3: "RGB"}


def read(path, height, width, channels):
    """A picture as float32 `[height, width, channels]` in [0, 1]."""
    with Image.open(path) as opened:
        picture = opened.convert(MODES[channels])
    if channels != 2:
        pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR))
        return pixels.reshape(height, width, channels) / np.float32(255)
    middle = picture.width // 2
    views = [picture.crop((x, 0, x + middle, picture.height)) for x in (0, middle)]
    scaled = [np.asarray(view.resize((width, height), Image.Resampling.BILINEAR)) for view in views]
    return np.stack(scaled, axis=-1) / np.float32(255)
