"""Results as tables for the terminal."""

import sys

from rich.console import Console
from rich.table import Table


def show(table):
    """Prints a table: as wide as the terminal, and wide enough for every column where there is none."""
    # Names of runs are no markup.
    Console(width=None if sys.stdout.isatty() else 200, markup=False).print(table)


def table_of(rows, title="") -> Table:
    """A table of rows, each a dict of texts by column; all columns of all rows, in the order in which they come."""
    table = Table(box=None, header_style="bold", title=title or None)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    for row in rows:
        table.add_row(*(row.get(column, "") for column in columns))
    return table
