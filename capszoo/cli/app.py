"""The application that commands belong to, and the arguments that several of them take."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from capszoo import plugins

# Not Rich's markup, which takes what stands in brackets for its own.
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown")

Name = Annotated[str, typer.Argument(help="A preset; see `capszoo list`.")]
RecipeName = Annotated[str, typer.Argument(help="A preset's name or a recipe file.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Overrides, e.g. train.epochs=3 model.routing=leaky")
]
Weights = Annotated[Path | None, typer.Option(help="A weight file to use instead of the published one.")]
Trained = Annotated[str, typer.Argument(help="A preset with weights, or the folder of a run.")]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--name", help="Of the model in the bundle and on servers [default: of the preset or the folder]."
    ),
]


def _tell_version(asked: bool):
    if asked:
        import capszoo as zoo

        typer.echo(zoo.__version__)
        raise typer.Exit


@app.callback()
def capszoo(
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", help="A module that registers architectures, data sets or protocols."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version.")
    ] = False,
):
    """The model zoo for capsule networks."""
    plugins.add(modules or ())
    if modules:
        # Not every command needs what they register, but a wrong name is always a mistake.
        plugins.load()


def trained(name, weights=None):
    """A preset, or where `name` is the folder of a run that run, as a `capszoo.protocols.Subject`."""
    from capszoo.protocols import Subject
    from capszoo.zoo.recipes import is_run

    if weights is None and is_run(name):
        from capszoo.training.folder import load_run

        recipe, model, best = load_run(name)
        _warn_of_other_images(recipe, name)
        return Subject(name, recipe, model, best["step"])
    import capszoo as zoo

    model = zoo.load(name, weights=weights)
    step = None if weights else model.preset.card.training["best step"]
    return Subject(name, model.preset.recipe, model, step)


def _warn_of_other_images(recipe, run):
    """Says where a run was trained on other images than its data have now."""
    from capszoo.data import DataNotFound
    from capszoo.training.folder import has_same_images
    from capszoo.training.weight_files import WeightsError

    # What is to be measured may need neither, nor training pictures that can be read.
    with contextlib.suppress(DataNotFound, WeightsError, ValueError):
        if not has_same_images(recipe, run):
            typer.secho(
                f"{run} was trained on other images than those that are there now; some may be among the test images.",
                fg="yellow",
                err=True,
            )
