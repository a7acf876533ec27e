"""Draws the sample digits: `python -m capszoo.data.samples.draw_digits [FOLDER]`.

Two hands write each digit once. A stroke is a smooth curve through the points below; a digit is prepared as
MNIST's are (LeCun et al. 1998): longer side 20 pixels, centre of mass in the middle of 28x28, white on black.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

FOLDER = Path(__file__).with_name("digits")
SIZE = 28  # pixels of a picture
BOX = 20  # pixels of a digit's longer side
SAMPLES = 4  # per pixel and axis

# The strokes of each digit: points x,y, x to the right and y downwards, in a box of about 100 by 100. Strokes
# that meet in a point make a corner.
_STROKES = {
    "0_a": ["60,3 34,12 16,42 18,76 38,97 62,88 80,56 78,22 60,4 50,7"],
    "0_b": ["52,2 22,12 6,46 16,84 48,98 82,84 94,48 80,14 50,2 40,6"],
    "1_a": ["52,0 50,50 47,100"],
    "1_b": ["28,24 40,14 50,0", "50,0 51,50 50,100"],
    "2_a": ["14,24 32,4 64,4 76,26 60,56 34,80 12,97", "12,97 44,92 90,95"],
    "2_b": ["12,20 36,1 72,8 78,36 56,68 26,95 6,92 14,74 40,78 66,95 96,92"],
    "3_a": ["14,12 40,1 72,10 68,32 36,46", "36,46 70,52 80,76 54,98 10,90"],
    "3_b": ["16,4 46,2 80,4", "80,4 60,24 42,40", "42,40 74,44 88,70 66,96 32,98 8,84"],
    "4_a": ["22,6 18,30 14,54", "14,54 46,57 86,50", "70,4 68,46 64,100"],
    "4_b": ["62,0 36,32 6,64", "6,64 48,66 94,63", "66,32 66,64 64,100"],
    "5_a": ["32,6 28,24 22,44", "22,44 52,40 74,60 66,86 40,99 8,90", "32,6 56,6 88,2"],
    "5_b": ["84,4 54,3 24,6", "24,6 22,24 20,46", "20,46 50,38 80,50 84,76 58,97 12,90"],
    "6_a": ["62,0 38,20 22,54 24,86 46,99 68,84 64,62 44,57 25,74"],
    "6_b": ["56,0 28,26 12,62 22,92 54,99 80,84 78,60 52,50 28,58 15,72"],
    "7_a": ["12,10 46,8 84,4", "84,4 64,42 48,100"],
    "7_b": ["8,6 44,5 86,5", "86,5 62,44 40,100", "30,50 56,49 82,47"],
    "8_a": ["72,14 50,1 26,14 34,38 62,60 68,84 44,99 20,84 30,60 58,40 74,18 66,8"],
    "8_b": ["50,47 24,34 26,10 52,1 78,12 74,36 48,48 20,62 18,88 50,99 82,88 80,62 52,48"],
    "9_a": ["72,16 50,2 26,16 26,40 46,48 68,32 72,16", "72,16 68,54 62,100"],
    "9_b": ["78,20 54,1 22,12 18,36 44,48 70,36 78,18", "78,18 80,56 68,88 46,99 26,92"],
}

# Per hand: diameter of the pen in pixels, and lean to the right.
_HANDS = {"a": (2.1, 0.22), "b": (2.9, 0.02)}


def draw(name):
    """The picture `[28, 28]` uint8 of one digit, for example `"3_a"`; the same at every call."""
    # RandomState's stream is frozen by NumPy's policy; a Generator's may change with a release.
    random = np.random.RandomState(list(name.encode()))
    diameter, lean = _HANDS[name[-1]]
    wobble = _wobble(random)
    strokes = [wobble(_curve(points) @ np.array([[1.0, 0.0], [-lean, 1.0]])) for points in _STROKES[name]]
    strokes = _fit(strokes, BOX - diameter)
    radii = [_pressure(random, len(stroke)) * diameter / 2 for stroke in strokes]
    points, radii = np.concatenate(strokes), np.concatenate(radii)
    # The centre of mass is that of the ink, so it is known only once the digit is drawn.
    points = points + (SIZE / 2 - _centre_of_mass(_ink(points, radii)))
    return np.round(255 * _ink(points, radii)).astype(np.uint8)


def main(folder=FOLDER):
    """Writes every digit as `folder/NAME.png`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in _STROKES:
        Image.fromarray(draw(name)).save(folder / f"{name}.png", optimize=True)


def _curve(points, samples=24):
    """A Catmull-Rom spline through the points, `samples` per span."""
    points = np.array([point.split(",") for point in points.split()], dtype="float64") / 100
    # Mirrored neighbours beyond the ends.
    padded = np.concatenate([[2 * points[0] - points[1]], points, [2 * points[-1] - points[-2]]])
    t = np.linspace(0, 1, samples)[:, None]
    spans = []
    for p0, p1, p2, p3 in zip(padded, padded[1:], padded[2:], padded[3:], strict=False):
        cubic = (3 * p1 - p0 - 3 * p2 + p3) * t**3 + (2 * p0 - 5 * p1 + 4 * p2 - p3) * t**2
        spans.append((cubic + (p2 - p0) * t) / 2 + p1)
    return np.concatenate(spans)


def _wobble(random):
    """An unsteady hand: displaces points smoothly, and where strokes meet, all by the same."""
    waves = random.normal(scale=4.0, size=(3, 2))
    phases = random.uniform(0, 2 * np.pi, size=3)
    directions = random.normal(scale=0.012, size=(3, 2))
    return lambda points: points + np.sin(points @ waves.T + phases) @ directions


def _pressure(random, count):
    """Width of the pen along a stroke, about 1: a slow swell, and thinner where it leaves the paper."""
    t = np.linspace(0, 1, count)
    swell = 1 + 0.12 * np.sin(2 * np.pi * (t * random.uniform(0.5, 1.5) + random.uniform()))
    return swell * (1 - 0.25 * t**6)


def _fit(strokes, side):
    """The strokes scaled, shape kept, so that their longer side is `side` pixels, in the middle of the picture."""
    points = np.concatenate(strokes)
    low, high = points.min(axis=0), points.max(axis=0)
    return [(stroke - (low + high) / 2) * (side / (high - low).max()) + SIZE / 2 for stroke in strokes]


def _ink(points, radii):
    """Ink `[28, 28]` in [0, 1] of a pen that goes through the points `[N, 2]`, in pixels."""
    axis = (np.arange(SIZE * SAMPLES) + 0.5) / SAMPLES
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    depth = np.full(grid.shape[:2], -np.inf)
    for point, radius in zip(points, radii, strict=True):
        depth = np.maximum(depth, radius - np.sqrt(((grid - point) ** 2).sum(axis=-1)))
    # The edge of the ink is soft over one pixel.
    fine = np.clip(depth + 0.5, 0, 1)
    return fine.reshape(SIZE, SAMPLES, SIZE, SAMPLES).mean(axis=(1, 3))


def _centre_of_mass(ink):
    axis = np.arange(SIZE) + 0.5
    return np.array([ink.sum(axis=0) @ axis, ink.sum(axis=1) @ axis]) / ink.sum()


if __name__ == "__main__":
    main(*sys.argv[1:])
