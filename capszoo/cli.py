"""The command line: `capszoo COMMAND`. Every command is a few lines around a function of the library."""

import dataclasses
import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

Name = Annotated[str, typer.Argument(help="A preset; see `capszoo list`.")]
RecipeName = Annotated[str, typer.Argument(help="A preset's name or a recipe file.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Overrides, e.g. train.epochs=3 model.routing=leaky")
]
Weights = Annotated[Path | None, typer.Option(help="A weight file to use instead of the published one.")]


@app.callback()
def capszoo():
    """The model zoo for capsule networks."""


@app.command("list")
def list_command(
    pattern: Annotated[str, typer.Argument(help="A shell pattern.")] = "*",
    architecture: str | None = None,
    routing: str | None = None,
    dataset: str | None = None,
    trained_on: str | None = None,
    licence: str | None = None,
    max_parameters: int | None = None,
    pretrained: Annotated[bool | None, typer.Option("--pretrained/--untrained")] = None,
    exports: str | None = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
):
    """List presets, with filters on what they are."""
    filters = {key: value for key, value in locals().items() if key not in ("pattern", "as_json")}
    from capszoo import presets

    found = [presets.get_preset(name) for name in presets.list_models(pattern, **filters)]
    if as_json:
        rows = {p.name: dataclasses.asdict(p.card) if p.card else None for p in found}
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    from capszoo.tables import preset_table, show

    show(preset_table(found))


@app.command()
def describe(name: Name):
    """Print the card of a preset."""
    from rich.console import Console
    from rich.markdown import Markdown

    from capszoo import presets

    text = presets.describe(name)
    # Tables of a terminal's width are for people; a pipe gets the Markdown itself.
    Console().print(Markdown(text)) if sys.stdout.isatty() else typer.echo(text)


@app.command()
def train(
    recipe: RecipeName,
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


@app.command()
def evaluate(
    name: Name,
    protocol: Annotated[list[str] | None, typer.Option(help="[default: the card's protocols]")] = None,
    weights: Weights = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the result to this file.")
    ] = None,
):
    """Measure a preset as its paper did, and print the paper's number beside it."""
    import capszoo as zoo
    from capszoo.progress import counting
    from capszoo.protocols import evaluate as measure

    model = zoo.load(name, weights=weights)
    recipe = model.preset.recipe
    results = []
    for each in protocol or recipe.card.protocols:
        command = f"capszoo evaluate {name} --protocol {each}" + (f" --weights {weights}" if weights else "")
        with counting(each) as progress:
            results.append(measure(model, recipe, each, command=command, progress=progress))
        typer.echo(f"{each}: {results[-1].sentence()}")
    if json_file:
        json_file.write_text(
            json.dumps([dataclasses.asdict(r) for r in results], indent=1) + "\n", encoding="utf-8"
        )


@app.command()
def publish(
    recipe: RecipeName,
    overrides: Overrides = None,
    run: Annotated[Path | None, typer.Option(help="Folder of the run [default: runs/RECIPE].")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of presets [default: the package's weights/].")
    ] = None,
    dtype: Annotated[str, typer.Option(help="What weights are stored as: float16 or float32.")] = "float16",
):
    """Turn a finished run into a preset's weights, behavioural check and card, with freshly measured numbers."""
    from capszoo.publishing import publish as make
    from capszoo.recipes import read_recipe

    parsed = read_recipe(recipe, overrides or ())
    card = make(parsed, run or Path("runs") / parsed.name, out, dtype, typer.echo)
    typer.echo(f"published {card.name}: {card.files['weights.safetensors'].bytes:,} bytes of weights")


@app.command()
def predict(
    images: Annotated[list[Path], typer.Argument(help="Pictures.")],
    model: Annotated[str, typer.Option(help="A preset.")] = "dynamic_mnist",
    out: Annotated[
        Path | None, typer.Option(help="Draw pictures, scores and reconstructions to this file.")
    ] = None,
    resize: Annotated[
        bool, typer.Option(help="Resize pictures of another size instead of refusing them.")
    ] = False,
):
    """Classify pictures, and draw what the model sees in them."""
    import numpy as np

    import capszoo as zoo
    from capszoo.images import read_image

    net = zoo.load(model)
    data = net.preset.recipe.data
    batch = np.stack([read_image(path, data.raw_shape, resize=resize) for path in images])
    outputs = {key: np.asarray(value) for key, value in net.predict_on_batch(net.preprocess(batch)).items()}
    for path, scores in zip(images, outputs["scores"], strict=True):
        best = np.argsort(-scores)[:3]
        typer.echo(f"{path.name}: " + "  ".join(f"{data.class_names[k]} {scores[k]:.3f}" for k in best))
    if out:
        from capszoo.visualize import draw_predictions

        figure = draw_predictions(
            batch, outputs["scores"], data.class_names, reconstructions=outputs.get("reconstruction")
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out)
        typer.echo(f"drawn: {out}")


@app.command()
def export(
    name: Name,
    out: Annotated[Path, typer.Option(help="Folder that gets the bundle.")],
    version: Annotated[int, typer.Option(help="Version number of the SavedModel, as TF Serving counts.")] = 1,
    weights: Weights = None,
    record: Annotated[
        bool, typer.Option("--record", help="Measure artefacts' test errors into the card.")
    ] = False,
):
    """Export a SavedModel and LiteRT files, reload each without capszoo, and compare."""
    import capszoo as zoo
    from capszoo.tables import export_table, show

    model = zoo.load(name, weights=weights)
    report = zoo.export(
        model, out, name=name, version=version, image_shape=model.preset.recipe.data.raw_shape
    )
    typer.echo(f"{out / name / str(version)}: {sum(f['bytes'] for f in report['files'].values()):,} bytes")
    typer.echo("Reloaded without capszoo and compared with the Keras model:")
    show(export_table(report))
    if record:
        from capszoo.exporting import record_exports

        record_exports(zoo.get_preset(name), out / name / str(version), typer.echo)


def main():
    """Runs the command line; an error that a user can mend is one line and exit status 1."""
    # Before any backend is imported: its start-up chatter is not for users.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("capszoo").setLevel(logging.INFO)
    try:
        app()
    except (ValueError, OSError, ArithmeticError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(1)
