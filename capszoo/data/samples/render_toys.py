"""Photographs the sample toys: `python -m capszoo.data.samples.render_toys [FOLDER]`; needs `capszoo[synthnorb]`.

One toy of each category of synthnorb, from its test split, as a stereo pair: left view in the left half.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

FOLDER = Path(__file__).with_name("toys")
ELEVATION, AZIMUTH, LIGHTING = 40, 60, 0  # degrees, degrees, number
# By category: the file's name, and which toy of the data set it is.
TOYS = {"0_animal": 0, "1_human": 1, "2_airplane": 0, "3_truck": 2, "4_car": 0}


def render(name):
    """The stereo pair `[96, 192]` uint8 of one toy, for example `"3_truck"`."""
    from capszoo.data.synthnorb.scenes import renderer_of

    pairs = renderer_of(0, int(name[0]), TOYS[name]).render(ELEVATION, AZIMUTH)
    return np.concatenate(list(pairs[LIGHTING]), axis=1)


def main(folder=FOLDER):
    """Writes every toy as `folder/NAME.png`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOYS:
        Image.fromarray(render(name)).save(folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
