"""Commands that make presets: train, tune, publish."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from capszoo import plugins
from capszoo.cli.app import Name, Overrides, RecipeName, Trained, app


@app.command()
def train(
    recipe: RecipeName,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run [default: runs/RECIPE].")] = None,
):
    """Train a recipe; the same command goes on where a killed run stopped."""
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.training.run import train as run
    from capszoo.zoo.recipes import is_run, read_recipe
    from capszoo.zoo.starting import find_start

    parsed = read_recipe(recipe, overrides or ())
    directory = out or (Path(recipe) if is_run(recipe) else Path("runs") / parsed.name)
    with TerminalProgress() as progress:
        record = run(parsed, directory, progress, find=find_start)
    best = record.get("best_validation_error")
    typer.echo(f"{'' if best is None else f'best validation error {best:.2%}; '}run folder: {directory}")


@app.command()
def finetune(
    name: Trained,
    data: Annotated[
        str,
        typer.Argument(help="A folder of pictures, a data set of capszoo, or one of TensorFlow Datasets."),
    ],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run [default: runs/PRESET_DATA].")] = None,
):
    """Train a preset on other data, measure it, and write its card; the run is then used like a preset."""
    import capszoo as zoo
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.zoo.recipes import named

    with TerminalProgress() as progress:
        card, folder = zoo.finetune(name, data, out, overrides=overrides or (), progress=progress)
    for metric in card.metrics:
        typer.echo(metric.sentence())
    typer.echo(
        f"run folder: {folder}; use it like a preset: capszoo predict --model {shlex.quote(named(folder))} PICTURE"
    )


@app.command()
def tune(
    recipe: RecipeName,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the search [default: runs/RECIPE_search].")
    ] = None,
):
    """Search for the values that a recipe's `search` section leaves open; started again, it goes on."""
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.search.tuner import tune as run
    from capszoo.zoo.recipes import read_recipe
    from capszoo.zoo.starting import find_start

    parsed = read_recipe(recipe, overrides or ())
    directory = out or Path("runs") / f"{parsed.name}_search"
    with TerminalProgress() as progress:
        rows = run(parsed, directory, progress, find=find_start)
    if rows:
        typer.echo(f"best validation error {rows[0]['validation_error']:.2%}; to train it: ", nl=False)
        # Every such recipe has the same name, and its run would have the same folder.
        words = str(directory / "best.yaml"), "--out", str(directory / "best")
        typer.echo(shlex.join(plugins.command("train", *words)))


@app.command()
def publish(
    recipe: RecipeName,
    overrides: Overrides = None,
    run: Annotated[Path | None, typer.Option(help="Folder of the run [default: runs/RECIPE].")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of presets [default: presets/; of the zoo's own the package's weights/]."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="What weights are stored as: float16, float32 or int8.")
    ] = "float16",
    search: Annotated[
        Path | None, typer.Option(help="Folder of the search that found the recipe's values.")
    ] = None,
):
    """Turn a finished run into a preset's weights, behavioural check and card, with freshly measured numbers."""
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.zoo.publishing import folder_of_presets
    from capszoo.zoo.publishing import publish as make
    from capszoo.zoo.recipes import is_run, read_recipe

    parsed = read_recipe(recipe, overrides or ())
    run = run or (Path(recipe) if is_run(recipe) else Path("runs") / parsed.name)
    out = out or folder_of_presets(parsed.name)
    with TerminalProgress() as progress:
        card = make(parsed, run, out, dtype, progress, search)
    size = card.files["weights.safetensors"].bytes
    typer.echo(f"published {card.name} in {out / card.name}: {size:,} bytes of weights")


@app.command("measure-again")
def measure_again(name: Name):
    """Measure a published preset's protocols with the present code, and write the numbers into its card."""
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.zoo.presets import get_preset
    from capszoo.zoo.publishing import measure_again as again

    with TerminalProgress() as progress:
        card = again(get_preset(name), progress)
    typer.echo(f"{card.name}: measured at revision {card.revision}")
