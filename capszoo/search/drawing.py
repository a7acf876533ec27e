"""The validation errors of a search against each of its values."""

import json

from capszoo.search.leaderboard import value_text


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
    texts = [value_text(value) for value in json.loads(json.dumps(space.choice))]
    turned = sum(map(len, texts)) > 30
    axes.set_xticks(range(len(texts)), texts, rotation=90 if turned else 0, fontsize="small")
    axes.margins(x=0.15)
    return lambda value: texts.index(value_text(value))
