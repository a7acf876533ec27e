"""Commands about presets: what there is, what it says of a picture, bundles of it."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from capszoo.cli.app import ModelName, Trained, Weights, app
from capszoo.config import ConfigError

# Pictures in one drawing: time grows faster than their number, and Matplotlib draws no more than some hundreds.
DRAWN = 32


@app.command("list")
def list_command(
    pattern: Annotated[str, typer.Argument(help="A shell pattern.")] = "*",
    architecture: Annotated[str | None, typer.Option(help="Of the recipe, e.g. matrix_em.")] = None,
    routing: Annotated[str | None, typer.Option(help="What routes, e.g. em.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Of the recipe, e.g. smallnorb.")] = None,
    trained_on: Annotated[str | None, typer.Option(help="What the weights have really seen.")] = None,
    licence: Annotated[str | None, typer.Option(help="Of the weights, e.g. Apache-2.0.")] = None,
    max_parameters: Annotated[int | None, typer.Option(help="The most that a network may have.")] = None,
    pretrained: Annotated[
        bool | None, typer.Option("--pretrained/--untrained", help="With weights, or without.")
    ] = None,
    exports: Annotated[
        str | None, typer.Option(help="A format that the card has measured, e.g. litert-float16.")
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="A row for each exported artefact: size, error and speed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
):
    """List presets, with filters on what they are."""
    filters = {key: value for key, value in locals().items() if key not in ("pattern", "long", "as_json")}
    import capszoo as zoo

    found = [zoo.get_preset(name) for name in zoo.list_models(pattern, **filters)]
    if as_json:
        rows = {p.name: dataclasses.asdict(p.card) if p.card else None for p in found}
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    from capszoo.cli.tables import artefact_table, preset_table
    from capszoo.protocols.tables import show

    if not found:
        typer.echo("no preset is such", err=True)
        return
    show(artefact_table(found) if long else preset_table(found))


@app.command()
def describe(
    name: Annotated[str, typer.Argument(help="A preset, see `capszoo list`, or the folder of a run.")],
):
    """Print the card of a preset."""
    from rich.console import Console
    from rich.markdown import Markdown

    import capszoo as zoo

    text = zoo.describe(name)
    # Tables of a terminal's width are for people; a pipe gets the Markdown itself.
    Console().print(Markdown(text)) if sys.stdout.isatty() else typer.echo(text)


@app.command()
def predict(
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Pictures, or folders of them; a stereo pair is one, the left view in its left half."
        ),
    ],
    model: Annotated[str, typer.Option(help="A preset, or the folder of a run.")] = "dynamic_mnist",
    out: Annotated[
        Path | None,
        typer.Option(help=f"Draw pictures (at most {DRAWN}), scores and reconstructions to this file."),
    ] = None,
    resize: Annotated[
        bool, typer.Option(help="Resize pictures of another size instead of refusing them.")
    ] = False,
):
    """Classify pictures, and draw what the model sees in them."""
    import numpy as np

    import capszoo as zoo
    from capszoo.data.images import read_pictures

    if out:
        _require_picture_file(out)
    images = _pictures(images)
    net = zoo.load(model)
    batch, _ = read_pictures(images, net.raw_shape, resize)
    _warn_of_dark_on_light(images, batch, net)
    outputs = net.predict(np.asarray(net.preprocess(batch)), verbose=0)
    if "scores" not in outputs:
        raise ConfigError(f"{model} scores nothing. Its outputs: {', '.join(outputs)}")
    # A network trained without labels has capsules that stand for no class.
    names = net.class_names or [f"capsule {k}" for k in range(outputs["scores"].shape[-1])]
    for path, scores in zip(images, outputs["scores"], strict=True):
        best = np.argsort(-scores)[:3]
        typer.echo(f"{path.name}: " + "  ".join(f"{names[k]} {scores[k]:.3f}" for k in best))
    if out:
        from capszoo.training.files import write_figure
        from capszoo.visualize import draw_predictions

        drawn = {name: outputs[name][:DRAWN] for name in ("scores", "reconstruction") if name in outputs}
        figure = draw_predictions(
            batch[:DRAWN], drawn["scores"], names, reconstructions=drawn.get("reconstruction")
        )
        write_figure(figure, out)
        typer.echo(f"drawn: {out}{_of_how_many(images)}")


@app.command()
def visualize(
    images: Annotated[list[Path], typer.Argument(help="Pictures, as for `capszoo predict`.")],
    out: Annotated[Path, typer.Option(help=f"Folder that gets the drawings, of at most {DRAWN} pictures.")],
    model: Annotated[str, typer.Option(help="A preset, or the folder of a run.")] = "dynamic_mnist",
    resize: Annotated[bool, typer.Option("--resize", help="Scale pictures to the model's size.")] = False,
):
    """Draw what the capsules of a model do with pictures, and write a page that explains each drawing."""
    import numpy as np

    import capszoo as zoo
    from capszoo.data.images import read_pictures
    from capszoo.visualize import overview, write_page

    images = _pictures(images)
    net = zoo.load(model)
    batch, _ = read_pictures(images, net.raw_shape, resize)
    _warn_of_dark_on_light(images, batch, net)
    names = net.class_names or net.preset.recipe.data.class_names
    drawings = overview(net, np.asarray(net.preprocess(batch[:DRAWN])), names)
    title = f"What {model} does with {', '.join(p.name for p in images[:DRAWN])}"
    for path in write_page(drawings, out, title):
        typer.echo(f"drawn: {path}{_of_how_many(images)}")


def _pictures(paths):
    """Folders replaced by the pictures that lie in them."""
    from capszoo.data.folder import pictures_in

    return [picture for path in paths for picture in (pictures_in(path) if path.is_dir() else [path])]


def _require_picture_file(path):
    """Errors: `ConfigError` for a folder, and for a file of a kind that matplotlib does not write."""
    from matplotlib.backend_bases import FigureCanvasBase

    if path.is_dir() or path.suffix.removeprefix(".").lower() not in FigureCanvasBase.filetypes:
        kinds = ", ".join(sorted(FigureCanvasBase.filetypes))
        raise ConfigError(
            f"--out must be the file of a picture, such as drawn.png ({kinds}). Received: {path}"
        )


def _of_how_many(images):
    """What is said of a drawing that does not have all pictures."""
    return f", the first {DRAWN} of {len(images)} pictures" if len(images) > DRAWN else ""


@app.command()
def export(
    name: Trained,
    out: Annotated[Path, typer.Option(help="Folder that gets the bundle.")],
    model_name: ModelName = None,
    version: Annotated[int, typer.Option(help="Version number of the SavedModel, as TF Serving counts.")] = 1,
    weights: Weights = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Also a LiteRT file with int8 weights outside of routing.")
    ] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Measure artefacts' speed and test errors into the card.")
    ] = False,
):
    """Export a SavedModel, LiteRT and ONNX files, reload each without capszoo, and compare."""
    import capszoo as zoo
    from capszoo.cli.tables import export_table
    from capszoo.exporting.naming import checked_name
    from capszoo.protocols.tables import show

    preset = zoo.get_preset(name)
    exported = checked_name(model_name or preset.name)
    if record and (weights or model_name or preset.outside or preset.card is None):
        raise ValueError(
            "--record is for a preset and its published weights. "
            f"Received: {weights or model_name or preset.outside or name}"
        )
    model = zoo.load(name, weights=weights)
    report = zoo.export(model, out, name=exported, version=version, int8=int8)
    typer.echo(
        f"{out / exported / str(version)}: {sum(f['bytes'] for f in report['files'].values()):,} bytes"
    )
    typer.echo("Reloaded without capszoo and compared with the Keras model:")
    show(export_table(report))
    if record:
        from capszoo.benchmarking import compare_bundle
        from capszoo.exporting import record_exports
        from capszoo.progress.terminal import TerminalProgress

        bundle = out / exported / str(version)
        with TerminalProgress() as progress:
            record_exports(preset, bundle, progress, compare_bundle(model, bundle))


def _warn_of_dark_on_light(paths, pictures, net):
    """Says which pictures are dark on light, where the network has only seen light on dark."""
    from capszoo.data.polarity import dark_on_light

    if not net.preset.recipe.data.light_on_dark:
        return
    for path, picture in zip(paths, pictures, strict=True):
        if dark_on_light(picture):
            typer.secho(
                f"{path.name} is dark on light, and {net.preset.name} has only seen light on dark: invert it.",
                fg="yellow",
                err=True,
            )
