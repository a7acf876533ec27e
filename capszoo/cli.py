"""The command line: `capszoo COMMAND`. Every command is a few lines around a function of the library."""

import logging
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

Overrides = Annotated[list[str] | None, typer.Argument(help="Overrides, e.g. train.epochs=3 model.routing=leaky")]


@app.callback()
def capszoo():
    """The model zoo for capsule networks."""


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A preset's name or a recipe file.")],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run [default: runs/RECIPE].")] = None,
):
    """Train a recipe; the same command goes on where a killed run stopped."""
    from capszoo.progress import TrainingProgress
    from capszoo.recipes import read_recipe
    from capszoo.training import train as run

    parsed = read_recipe(recipe, overrides or ())
    directory = out or Path("runs") / parsed.name
    with TrainingProgress() as reporter:
        record = run(parsed, directory, reporter)
    typer.echo(f"best validation error {record['best_validation_error']:.2%}; run folder: {directory}")


def main():
    """Runs the command line; errors a user can mend are one line and exit status 1."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    app()
