"""Whole measurements: of a recipe, and of a routing alone. What they return is plain data, as it stands in the JSON."""

import dataclasses
import json
import os
from pathlib import Path

from capszoo.benchmarking import bundles, memory, networks, routing_alone
from capszoo.benchmarking.baseline import MISSING, textbook
from capszoo.benchmarking.drawing import draw_scaling, draw_sides
from capszoo.benchmarking.machine import facts
from capszoo.benchmarking.measuring import interleave, summarise
from capszoo.benchmarking.roofline import roofline
from capszoo.benchmarking.startup import startup
from capszoo.exporting import servers
from capszoo.exporting.verification import require_whole
from capszoo.progress import QUIET
from capszoo.training.files import write_figure, write_text
from capszoo.zoo import presets, recipes

SIZES, SECONDS = (1, 8, 32), 4.0


def benchmark(recipe, overrides=(), sizes=SIZES, seconds=SECONDS, bundle=None, progress=QUIET):
    """Training and inference of a recipe's network, its memory, and how long its published form takes to start.

    where:
      recipe, overrides: see `capszoo.zoo.recipes.read_recipe`.
      sizes: images per batch; memory and the bundle are measured with the largest.
      seconds: for how long each work at each size is measured, see `interleave`.
      bundle: the folder of one version of an exported bundle; None is the newest of a preset in a checkout's export/.
      progress: says what was measured.

    Memory comes first: a form that a process of its own cannot run with the largest size is left out.
    Returns a dict: `machine`, `subject`, `recipe`, `notes` (what was left out and why), rows of `speed` and `memory`,
    `roofline` (see there; of inference in the largest batches) and `startup` (seconds; with `capszoo.load` for a preset
    with weights).
    Errors: `ConfigError`; `ValueError` for a size below one, for a folder that is no bundle or a damaged one, and where
    even our own form cannot run.
    """
    if min(sizes) < 1:
        raise ValueError(f"batch sizes must be at least 1. Received: {list(sizes)}")
    name = recipes.current_name(str(recipe))
    published = name in recipes.names() and not overrides
    weights = published and presets.get_preset(name).card is not None
    recipe = recipes.read_recipe(name, overrides)
    if bundle:
        bundles.require_bundle(bundle)
    elif published:
        bundle = servers.newest(servers.PUBLISHED / recipe.name)
    if bundle:
        require_whole(bundle)
    prepare()
    machine = facts()
    names, reason = networks.variants(recipe)
    plain = {"batch": max(sizes), "name": recipe.name, "recipe": recipe.to_mapping()}
    used, notes = _memory({name: {"variant": name, **plain} for name in names}, progress)
    notes += [reason] if reason else []
    names = [row["variant"] for row in used]
    rows, sizes = [], sorted(sizes)
    for work, precision in (("training", recipe.train.precision), ("inference", "float32")):
        forms = {name: networks.Network(recipe, name, precision) for name in names}
        for size in sizes:
            steps = {name: getattr(form, f"{work}_step")(size) for name, form in forms.items()}
            rows += _rows(work, size, steps, seconds)
            progress.say(_sentence(f"{work}, {size} images a batch", rows[-len(names) :]))
            for form in forms.values():
                form.forget()
    progress.say("roofline")
    speeds = {row["variant"]: row["images_per_second"] for row in rows[-len(names) :]}
    bounds = roofline(forms[networks.OURS].predicting, speeds)
    if bundle:
        progress.say("bundle")
        try:
            rows += bundles.measure_bundle(Path(bundle), (max(sizes),), seconds / 2)
            named = bundles.name_of(bundle)
            notes += [] if named == recipe.name else [f"The bundle is one of {named}, not of {recipe.name}."]
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            # What was measured before is not lost.
            notes.append(f"The bundle is left out: {error}")
    progress.say("start-up")
    try:
        seconds_to_start = startup(recipe.name if weights else None)
    except RuntimeError as error:  # As of weights that are in no package here.
        notes.append(f"The time that loading takes is left out: {error}")
        seconds_to_start = startup()
    return {
        "machine": machine,
        "subject": recipe.name,
        "recipe": recipe.to_mapping(),
        "notes": notes,
        "speed": rows,
        "memory": used,
        "roofline": bounds,
        "startup": seconds_to_start,
    }


def benchmark_routing(routing, seconds=1.0, progress=QUIET):
    """A routing alone, over batch, types, grid and iterations, see `routing_alone.Problem`; memory in the middle.

    Returns a dict as `benchmark`; the rows of `speed` also say `axis` and the fields of their problem.
    Errors: `ValueError` for a routing other than "em" and "dynamic", and on another backend than TensorFlow.
    """
    problems = routing_alone.sweep(routing)
    prepare()
    machine = facts()
    middle = dataclasses.asdict(routing_alone.MIDDLE[routing])
    requests = {name: {"variant": name, "problem": middle} for name in routing_alone.variants(routing)}
    used, notes = _memory(requests, progress)
    notes += [] if textbook() else [MISSING]
    names = [row["variant"] for row in used]
    rows = []
    for axis, problem in problems:
        steps = {name: routing_alone.steps(problem, name) for name in names}
        for number, work in enumerate(("inference", "training")):
            functions = {name: pair[number] for name, pair in steps.items()}
            where = {"axis": axis, **dataclasses.asdict(problem)}
            rows += [{**where, **row} for row in _rows(work, problem.batch, functions, seconds)]
            progress.say(_sentence(f"{work}, {axis} {getattr(problem, axis)}", rows[-len(names) :]))
    return {
        "machine": machine,
        "subject": f"{routing} routing alone",
        "notes": notes,
        "speed": rows,
        "memory": used,
    }


def write(report, folder, name):
    """Writes NAME.json into `folder`, and for a routing alone NAME.png; returns their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.json"]
    write_text(paths[0], json.dumps(report, indent=1) + "\n")
    draw = draw_scaling if report["speed"] and "axis" in report["speed"][0] else None
    draw = draw_sides if report["memory"] and "side" in report["memory"][0] else draw
    if draw:
        paths.append(folder / f"{name}.png")
        write_figure(draw(report), paths[1], dpi=150)
    return paths


def prepare():
    """Settings of this process and those that it starts, before a device is used."""
    # Else the first process to use a GPU takes all of its memory.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _memory(requests, progress):
    """Rows of what each form's training step needs, and what is to be said of those that cannot run."""
    rows, notes = [], []
    for name, request in requests.items():
        progress.say(f"memory: {name}")
        size = request.get("batch") or request["problem"]["batch"]
        try:
            rows.append({"batch": size, "variant": name, "bytes": memory.peak_memory(request)})
        except RuntimeError as error:
            notes.append(f"{name} is left out, {size} images a batch: {error}")
    if networks.OURS not in {row["variant"] for row in rows}:
        raise ValueError(f"nothing can be measured: {notes[0]}")
    return rows, notes


def _rows(work, size, functions, seconds):
    summary = summarise(interleave(functions, seconds), size)
    return [{"work": work, "batch": size, "variant": name, **row} for name, row in summary.items()]


def _sentence(what, rows):
    """One line that tells how it goes."""
    return f"{what}: " + ", ".join(f"{row['variant']} {row['images_per_second']:,.1f}/s" for row in rows)
