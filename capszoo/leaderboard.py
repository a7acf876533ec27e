"""What a search has found: its trials in order, the best recipe, a drawing.

A leaderboard is a list of plain dicts, one for each set of values, best first:
  trial: its number, and the name of its folder,
  values: by the recipe's keys, e.g. {"model.units": 8},
  status: "completed", or "failed" with a `reason`,
  validation_error: a share in [0, 1], the lowest of its epochs; None for a failed trial,
  epochs, steps, seconds: how long it was trained; validation is not counted in the seconds.
"""

import dataclasses
import json
import os
from pathlib import Path

import yaml

from capszoo import config
from capszoo.card import SearchRecord
from capszoo.search import with_values


def replace_text(path: Path, text: str):
    """Writes a file that is never seen half-written, whichever processes write it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write(rows, recipe, directory: Path):
    """Writes `leaderboard.json`, `leaderboard.md` and, where a trial was completed, `best.yaml` and `search.png`."""
    replace_text(directory / "leaderboard.json", json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    replace_text(directory / "leaderboard.md", to_markdown(rows))
    if rows and rows[0]["status"] == "completed":
        replace_text(directory / "best.yaml", best_recipe(rows, recipe))
        temporary = directory / f".search.png.{os.getpid()}"
        draw(rows, recipe.search).savefig(temporary, format="png", dpi=120)
        temporary.replace(directory / "search.png")


def read(directory: Path) -> SearchRecord:
    """What the search in a folder has found, for a card.

    Errors: `ConfigError` where there is no search or not one completed trial.
    """
    path = directory / "leaderboard.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    if not rows or rows[0]["status"] != "completed":
        raise config.ConfigError(
            f"the folder of a search with a completed trial is needed. Received: {directory}"
        )
    search = config.read_yaml(directory / "search.yaml")["search"]
    return SearchRecord(search["oracle"], search["epochs"], search["images"], tuple(rows))


def cells(rows) -> list[list[str]]:
    """The leaderboard as text: a line of headings, and one line for each row."""
    keys = list(rows[0]["values"]) if rows else []
    table = [["", "trial", *keys, "validation error", "epochs", "steps", "seconds"]]
    for place, row in enumerate(rows, start=1):
        values = [_text(row["values"][key]) for key in keys]
        if row["status"] == "failed":
            table.append(["", str(row["trial"]), *values, f"failed: {row['reason']}", "", "", ""])
        else:
            cost = [f"{row['epochs']}", f"{row['steps']:,}", f"{row['seconds']:,.0f}"]
            table.append([str(place), str(row["trial"]), *values, f"{row['validation_error']:.2%}", *cost])
    return table


def _text(value):
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value).strip('"')


def to_markdown(rows) -> str:
    """The leaderboard as a Markdown table."""
    heading, *lines = cells(rows)
    lines = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in (heading, ["---"] * len(heading), *lines))


def best_recipe(rows, recipe) -> str:
    """The text of a recipe with the values of the first row: for a whole training, not for one of a trial's length."""
    best = rows[0]
    images = recipe.search.images or recipe.train.images
    of_images = f" on {images:,} training images" if images else ""
    head = [
        f"Found by a search of {recipe.name}, {recipe.search.oracle}, {len(rows)} sets of values: trial "
        f"{best['trial']}, validation error {best['validation_error']:.2%}",
        f"after {best['steps']:,} steps{of_images}. Its values:",
        *(f"  {key}: {_text(value)}" for key, value in best["values"].items()),
    ]
    found = with_values(recipe, best["values"])
    parts = {name: _different(getattr(found, name)) for name in ("model", "data", "train", "card")}
    return "".join(f"# {line}\n" for line in head) + "\n" + yaml.safe_dump(parts, sort_keys=False)


def _different(part):
    """What of a section is not its default, and its name."""
    defaults = {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(part)
    }
    mapping = config.to_mapping(part)
    return {key: mapping[key] for key in mapping if key == "name" or getattr(part, key) != defaults[key]}


def draw(rows, search):
    """A figure with a panel for each searched key: its values against the validation error, the best one ringed.

    Points grow with the epochs of their trial. Failed trials are crosses at the upper edge.
    """
    from matplotlib.figure import Figure

    keys = list(search.space)
    figure = Figure(figsize=(3.2 * len(keys) + 0.6, 3.4), layout="constrained")
    panels = figure.subplots(1, len(keys), sharey=True, squeeze=False)[0]
    completed = [row for row in rows if row["status"] == "completed"]
    failed = [row for row in rows if row["status"] == "failed"]
    errors = [100 * row["validation_error"] for row in completed]
    sizes = [15 + 45 * row["epochs"] / search.epochs for row in completed]
    for axes, key in zip(panels, keys, strict=True):
        space = search.space[key]
        place = _places(axes, space)
        axes.scatter([place(row["values"][key]) for row in completed], errors, sizes, alpha=0.6)
        axes.scatter(place(completed[0]["values"][key]), errors[0], 140, facecolors="none", edgecolors="C3")
        above = axes.get_xaxis_transform()
        axes.scatter(
            [place(row["values"][key]) for row in failed],
            [0.98] * len(failed),
            30,
            "C3",
            marker="x",
            transform=above,
        )
        axes.set_xlabel(key)
    panels[0].set_ylabel("validation error, %")
    return figure


def _places(axes, space):
    """Prepares the x axis for a space; returns where a value lies on it."""
    from matplotlib.ticker import LogLocator, NullLocator

    if space.choice is None:
        if (space.int or space.float).log:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_locator(NullLocator())
        return lambda value: value
    texts = [_text(value) for value in json.loads(json.dumps(space.choice))]
    turned = sum(map(len, texts)) > 30
    axes.set_xticks(range(len(texts)), texts, rotation=90 if turned else 0, fontsize="small")
    axes.margins(x=0.15)
    return lambda value: texts.index(_text(value))
