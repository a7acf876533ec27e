"""Memory of a training step against the side of its images: what breaks first where images become large."""

import dataclasses

from capszoo.benchmarking import memory, networks
from capszoo.benchmarking.machine import facts
from capszoo.benchmarking.report import prepare
from capszoo.progress import QUIET
from capszoo.zoo import recipes

FORMS = (networks.OURS, networks.GRAPH, networks.OPEN)


def benchmark_sides(recipe, sides, overrides=(), batch=8, classes=None, progress=QUIET):
    """What a training step of a recipe's network needs of memory for square images of several sides.

    where:
      recipe, overrides: see `capszoo.zoo.recipes.read_recipe`; its images have other sides here.
      sides: in pixels.
      batch: images a step.
      classes: another number of them than the data set's.
      progress: says a line for each measurement.

    Returns a dict as `benchmark`; rows of `memory` say `side`, `batch`, `classes`, `variant`, `parameters` and `bytes`.
    A form that cannot run with a side is left out there, which `notes` say, and with larger ones; so is a side for
    which the architecture has no network.
    Errors: `ConfigError`; `ValueError` for a side, a batch or a number of classes below one.
    """
    for name, number in {"batch": batch, "classes": classes, "side": min(sides)}.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1. Received: {number}")
    recipe = recipes.read_recipe(recipe, overrides)
    prepare()
    channels = recipe.data.image_shape[2]
    classes = recipe.data.num_classes if classes is None else classes
    known, _ = networks.variants(recipe)
    forms = [form for form in FORMS if form in known]
    rows, notes = [], []
    for side in sorted(sides):
        images = networks.RandomImages((side, side, channels), classes, recipe.data.labels_per_image)
        try:
            parameters = dataclasses.replace(recipe, data=images).build().count_params()
        except ValueError as error:
            notes.append(f"{side} pixels are left out: {error}")
            continue
        for form in list(forms):
            request = {"variant": form, "batch": batch, "name": recipe.name, "recipe": recipe.to_mapping()}
            try:
                used = memory.peak_memory({**request, "images": dataclasses.asdict(images)})
            except RuntimeError as error:
                forms.remove(form)
                notes.append(f"{form} is left out from {side} pixels on: {error}")
                continue
            where = {"side": side, "batch": batch, "classes": classes, "parameters": parameters}
            rows.append({**where, "variant": form, "bytes": used})
            progress.say(f"{side} pixels, {form}: {'unknown' if used is None else f'{used / 1e6:,.0f} MB'}")
    return {"machine": facts(), "subject": recipe.name, "notes": notes, "speed": [], "memory": rows}
