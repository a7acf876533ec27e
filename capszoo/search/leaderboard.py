"""The trials of a search in order, as text.

A leaderboard is a list of plain dicts, one for each set of values, best first:
  trial: its number, and the name of its folder,
  values: by the recipe's keys, e.g. {"model.units": 8},
  status: "completed", or "failed" with a `reason`,
  validation_error: a share in [0, 1], the lowest of its epochs; None for a failed trial,
  epochs, steps, seconds: how long it was trained; validation is not counted in the seconds.
"""

import json

from rich.table import Table


def cells(rows) -> list[list[str]]:
    """The leaderboard as text: a line of headings, and one line for each row."""
    keys = list(rows[0]["values"]) if rows else []
    table = [["", "trial", *keys, "validation error", "epochs", "steps", "seconds"]]
    for place, row in enumerate(rows, start=1):
        values = [value_text(row["values"][key]) for key in keys]
        if row["status"] == "failed":
            table.append(["", str(row["trial"]), *values, f"failed: {row['reason']}", "", "", ""])
        else:
            cost = [f"{row['epochs']}", f"{row['steps']:,}", f"{row['seconds']:,.0f}"]
            table.append([str(place), str(row["trial"]), *values, f"{row['validation_error']:.2%}", *cost])
    return table


def value_text(value) -> str:
    """A value as a person would write it."""
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value).strip('"')


def to_markdown(rows) -> str:
    """The leaderboard as a Markdown table."""
    heading, *lines = cells(rows)
    lines = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in (heading, ["---"] * len(heading), *lines))


def to_table(rows) -> Table:
    """The leaderboard as a table for the terminal."""
    heading, *lines = cells(rows)
    table = Table(box=None, header_style="bold", title=f"{len(rows)} tried")
    for column in heading:
        table.add_column(column, justify="right", overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table
