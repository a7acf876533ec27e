"""All views of all toys: which are rendered, in which order, by how many processes."""

import functools
import io
import itertools
import multiprocessing
from collections.abc import Iterator

import numpy as np
from PIL import Image
from rich.progress import track

from capszoo.data.synthnorb.airplanes import model_airplane
from capszoo.data.synthnorb.animals import model_animal
from capszoo.data.synthnorb.cars import model_car
from capszoo.data.synthnorb.humans import model_human
from capszoo.data.synthnorb.renderer import AZIMUTHS, ELEVATIONS, LIGHTINGS, Renderer
from capszoo.data.synthnorb.trucks import model_truck

# In TFDS's order of categories and under its names.
MODELS = {
    "four-legged animals": model_animal,
    "human figures": model_human,
    "airplanes": model_airplane,
    "trucks": model_truck,
    "cars": model_car,
}
INSTANCES = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}  # as in smallNORB


def renderer_of(seed: int, category: int, instance: int) -> Renderer:
    """Return the renderer of one toy; equal arguments give equal toys.

    Another `seed` gives toys of the same ten kinds with other proportions, postures and azimuths zero.
    """
    rng = np.random.default_rng([seed, category, instance])
    toy = list(MODELS.values())[category](instance, rng)
    return Renderer(toy.normalised(yaw=rng.uniform(0, 360)), fill=rng.uniform(0.66, 0.78))


def examples(seed: int, split: str, processes: int) -> Iterator[tuple[dict[str, int], bytes, bytes]]:
    """Yield the codes of the factors, and the left and right image as PNG, of all 24,300 views of a split.

    The progress bar counts blocks: one toy at one elevation, 108 views. Neither the images nor their order depend on
    `processes`; they are spawned, not forked, because the caller may have started threads of TensorFlow's.
    """
    blocks = list(itertools.product(range(len(MODELS)), INSTANCES[split], range(len(ELEVATIONS))))
    views = functools.partial(_views, seed)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for (category, instance, elevation), block in zip(
            blocks, track(pool.imap(views, blocks), f"synthnorb {split}", len(blocks)), strict=True
        ):
            for azimuth, lighting, left, right in block:
                factors = {"label_category": category, "instance": instance, "label_elevation": elevation}
                yield {**factors, "label_azimuth": azimuth, "label_lighting": lighting}, left, right


_renderer_of = functools.lru_cache(maxsize=1)(
    renderer_of
)  # a process is given most elevations of a toy one after the other


def _views(seed: int, block: tuple[int, int, int]) -> list[tuple[int, int, bytes, bytes]]:
    category, instance, elevation = block
    prints = []
    for azimuth, degrees in enumerate(AZIMUTHS):
        pairs = _renderer_of(seed, category, instance).render(ELEVATIONS[elevation], degrees)
        prints += [(azimuth, lighting, *map(_png, pairs[lighting])) for lighting in range(len(LIGHTINGS))]
    return prints


def _png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()
