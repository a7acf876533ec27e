"""Tables of the zoo for the terminal."""

from rich.table import Table


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
        paper = "" if first is None or first.paper is None else first.text(first.paper)
        measured = f"{first.metric} {first.text(first.value)} (n={first.n})" if first else ""
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


def artefact_table(presets) -> Table:
    """Weights and exported artefacts of presets: bytes, test error, and images per second against the Keras model."""
    table = Table(box=None, header_style="bold")
    for column in ("preset", "artefact", "bytes", "test error", "speed (Keras = 1)"):
        table.add_column(column, justify="right" if column == "bytes" else "left", no_wrap=column == "preset")
    for preset in presets:
        if preset.card is None:
            table.add_row(preset.name, "(no weights)", "", "", "")
            continue
        for name, file in preset.card.files.items():
            table.add_row(preset.name, name, f"{file.bytes:,}", "", "")
        for name, artefact in preset.card.exports.items():
            speed = ", ".join(f"{ratio:.2f} at batch {size}" for size, ratio in artefact.speed.items())
            table.add_row(preset.name, name, f"{artefact.bytes:,}", artefact.errors(), speed)
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


def comparison_table(metrics) -> Table:
    """Architectures by what was measured of their presets, the paper's number beside each.

    `metrics` are the `Measurement`s of each `Preset`: `[(preset, measurements), ...]`. Whatever there is more of, of
    architectures and of measurements, makes the rows, so that the table stays narrow.
    """
    cells = {}
    for preset, measurements in metrics:
        name = str(preset.outside) if preset.outside else preset.name.replace(f"_{preset.dataset}", "")
        for m in measurements:
            paper = "-" if m.paper is None else m.text(m.paper)
            interval = " to ".join(map(m.text, m.interval))
            # The paper's set, of which ours may be a twin, or what the protocol looks at instead of that.
            data = preset.dataset if m.data == preset.card.trained_on else m.data
            cells[name, f"{m.protocol}, {m.data}"] = (
                f"{m.text(m.value)} ({interval})",
                f"{paper} {data}",
            )
    rows, columns = (list(dict.fromkeys(place)) for place in zip(*cells, strict=True))
    if len(columns) > len(rows):
        rows, columns = columns, rows
        cells = {(column, row): cell for (row, column), cell in cells.items()}
    table = Table(box=None, header_style="bold")
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
        table.add_column("paper", justify="right")
    for row in rows:
        table.add_row(row, *(text for column in columns for text in cells.get((row, column), ("", ""))))
    return table
