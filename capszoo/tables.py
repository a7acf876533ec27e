"""Tables for the terminal."""

import sys

from rich.console import Console
from rich.table import Table


def show(table):
    """Prints a table: as wide as the terminal, and wide enough for every column where there is none."""
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def preset_table(presets) -> Table:
    """Presets, one a row: what they are, what they were trained on, and their first measured number."""
    table = Table(box=None, header_style="bold")
    for column in ("preset", "routing", "data set", "trained on", "parameters", "measured", "paper"):
        table.add_column(
            column, justify="right" if column == "parameters" else "left", no_wrap=column == "preset"
        )
    for preset in presets:
        card = preset.card
        if card is None:
            table.add_row(preset.name, preset.routing, preset.dataset, "(no weights)", "", "", "")
            continue
        first = card.metrics[0] if card.metrics else None
        paper = "" if first is None or first.paper is None else f"{first.paper:.2%}"
        measured = f"{first.metric} {first.value:.2%} (n={first.n})" if first else ""
        table.add_row(
            preset.name,
            preset.routing,
            preset.dataset,
            card.trained_on,
            f"{card.parameters:,}",
            measured,
            paper,
        )
    return table


def export_table(report) -> Table:
    """Exported artefacts and their largest deviations from the Keras model."""
    table = Table(box=None, header_style="bold")
    for column in ("artefact", "output", "differs by at most"):
        table.add_column(column)
    for artefact, outputs in report["deviations"].items():
        for output, deviation in outputs.items():
            table.add_row(artefact, output, f"{deviation:.1e}")
    return table
