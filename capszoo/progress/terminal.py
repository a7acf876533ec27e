"""Progress bars and lines in the terminal."""

import sys
import time

from rich import progress as bars
from rich.console import Console

from capszoo.progress import Progress

# Seconds between two drawings of the bar.
INTERVAL = 0.1


class TerminalProgress(Progress):
    """A bar for the task under way, which is gone at the end, and the lines that were said; a context manager.

    The bar is drawn by whoever advances it. A thread of its own would import as it draws, and TensorFlow Datasets
    exchanges `__import__` for a while when a data set is opened.
    """

    def __init__(self):
        # Where there is no terminal, tables are wide enough for every column.
        self.console = Console(width=None if sys.stdout.isatty() else 140)
        self.bar = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[numbers]}"),
            bars.TimeRemainingColumn(),
            console=self.console,
            auto_refresh=False,
            transient=True,
            # Into a file it would be an empty line.
            disable=not self.console.is_terminal,
        )
        self.task, self.drawn = None, 0.0

    def __enter__(self):
        self.bar.start()
        return self

    def __exit__(self, *_):
        self.bar.stop()

    def begin(self, title, total, done=0):
        if self.task is not None:
            self.bar.remove_task(self.task)
        self.task = self.bar.add_task(title, total=total, completed=done, numbers="")
        self._draw()

    def advance(self, count=1, numbers=None):
        if self.task is None:
            return
        shown = "  ".join(f"{key} {float(value):.4f}" for key, value in (numbers or {}).items())
        self.bar.update(self.task, advance=count, numbers=shown)
        if time.monotonic() - self.drawn >= INTERVAL:
            self._draw()

    def say(self, text):
        self.console.print(text, highlight=False, markup=False, soft_wrap=isinstance(text, str))

    def _draw(self):
        self.drawn = time.monotonic()
        self.bar.refresh()
