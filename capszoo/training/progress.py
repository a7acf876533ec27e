"""Progress bars for training and evaluation."""

import contextlib

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class TrainingProgress:
    """Reporter of `capszoo.training.run.train`: a bar over all steps, and one line per epoch."""

    def __init__(self):
        self.console = Console()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=self.console,
        )

    def __enter__(self):
        self.bar.start()
        return self

    def __exit__(self, *_):
        self.bar.stop()

    def begin(self, recipe, step, total):
        """Starts the bar at `step`."""
        self.task = self.bar.add_task(recipe.name, total=total, completed=step, numbers="")

    def step(self, logs):
        """Moves the bar by one step and shows the running means of `logs`."""
        numbers = "  ".join(f"{key} {float(value):.4f}" for key, value in logs.items())
        self.bar.update(self.task, advance=1, numbers=numbers)

    def epoch(self, record):
        """Prints the numbers of a finished epoch."""
        validation = ""
        if "validation_error" in record:
            best = record["best_validation_error"]
            validation = f"validation error {record['validation_error']:.2%} (best {best:.2%}), "
        self.console.print(
            f"epoch {record['epoch']}: loss {record['loss']:.4f}, {validation}"
            f"{record['images_per_second']:.0f} images/s"
        )


@contextlib.contextmanager
def counting(title):
    """A bar for something that is counted: gives a function `(done, total)`."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        transient=True,
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
