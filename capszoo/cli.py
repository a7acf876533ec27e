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
Trained = Annotated[str, typer.Argument(help="A preset with weights, or the folder of a run.")]


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
    best = record.get("best_validation_error")
    typer.echo(f"{'' if best is None else f'best validation error {best:.2%}; '}run folder: {directory}")


@app.command()
def tune(
    recipe: RecipeName,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the search [default: runs/RECIPE_search].")
    ] = None,
):
    """Search for the values that a recipe's `search` section leaves open; started again, it goes on."""
    from capszoo.progress import SearchProgress
    from capszoo.recipes import read_recipe
    from capszoo.tuning import tune as run

    parsed = read_recipe(recipe, overrides or ())
    directory = out or Path("runs") / f"{parsed.name}_search"
    with SearchProgress() as reporter:
        rows = run(parsed, directory, reporter)
    if rows:
        typer.echo(f"best validation error {rows[0]['validation_error']:.2%}; to train it: ", nl=False)
        typer.echo(f"capszoo train {directory / 'best.yaml'}")


@app.command()
def evaluate(
    name: Trained,
    protocol: Annotated[list[str] | None, typer.Option(help="[default: the card's protocols]")] = None,
    weights: Weights = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the result to this file.")
    ] = None,
):
    """Measure a preset as its paper did, and print the paper's number beside it."""
    results = _measured(name, protocol, weights)
    if json_file:
        json_file.write_text(
            json.dumps([dataclasses.asdict(r) for r in results], indent=1) + "\n", encoding="utf-8"
        )


@app.command()
def compare(
    names: Annotated[list[str], typer.Argument(help="Presets with weights.")],
    again: Annotated[
        bool, typer.Option("--again", help="Measure again instead of reading the cards; needs the data.")
    ] = False,
):
    """Show presets beside each other and beside their papers: one row per architecture, one column per data set.

    Table 3 of Faria 2019: `capszoo compare kernel_mnist lstm_mnist learned_em_mnist kernel_smallnorb ...`.
    """
    from capszoo import presets
    from capszoo.tables import comparison_table, show

    metrics = []
    for name in names:
        preset = presets.get_preset(name)
        if preset.card is None:
            raise ValueError(f"{name} has no weights, so nothing was measured.")
        metrics.append((preset, _measured(name) if again else preset.card.metrics))
    show(comparison_table(metrics))


@app.command()
def viewpoints(
    cnn: Trained,
    capsules: Trained,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the comparison to this file.")
    ] = None,
):
    """Compare two models that were matched on familiar viewpoints on novel ones (Hinton et al. 2018, Table 2)."""
    from capszoo.progress import counting
    from capszoo.protocols import compare_viewpoints
    from capszoo.tables import show, viewpoint_table

    with counting("viewpoints") as progress:
        comparison = compare_viewpoints(
            _trained(cnn),
            _trained(capsules),
            command=f"capszoo viewpoints {cnn} {capsules}",
            progress=progress,
        )
    show(viewpoint_table(comparison))
    typer.echo(
        f"familiar error of the capsules less that of the CNN: {comparison.mismatch:+.2%}; training steps: "
        + ", ".join(f"{column} {step}" for column, step in comparison.steps.items())
    )
    if json_file:
        json_file.write_text(comparison.to_json(), encoding="utf-8")


@app.command()
def attack(
    name: Trained,
    out: Annotated[Path, typer.Option(help="Folder that gets attack.json and attack.png.")],
    against: Annotated[str | None, typer.Option(help="A second model to attack for comparison.")] = None,
    source: Annotated[
        str | None, typer.Option(help="A third one, whose adversarial images are shown to both (black box).")
    ] = None,
    images: Annotated[int, typer.Option(help="Number of test images; 0 takes all.")] = 500,
    epsilon: Annotated[list[float] | None, typer.Option(help="Size of the change; give several.")] = None,
    loss: Annotated[
        str, typer.Option(help="What attacks change: cross_entropy or objective.")
    ] = "cross_entropy",
):
    """Measure and draw how far adversarial images mislead a model (Hinton et al. 2018, Figure 3)."""
    from capszoo.progress import counting
    from capszoo.protocols import adversarial
    from capszoo.tables import robustness_table, show

    command = f"capszoo attack {name} --images {images} --loss {loss} --out {out}"
    command += (f" --against {against}" if against else "") + (f" --source {source}" if source else "")
    command += "".join(f" --epsilon {each:g}" for each in epsilon or ())
    with counting("attacks") as progress:
        report = adversarial.measure_robustness(
            [_trained(each) for each in (name, against) if each],
            _trained(source) if source else None,
            epsilons=sorted(epsilon or adversarial.EPSILONS),
            images=images or None,
            loss=loss,
            command=command,
            progress=progress,
        )
    show(robustness_table(report))
    for each in report.gradients:
        typer.echo(
            f"{each.model}: {each.zero_share:.2%} of the gradients are zero ({each.unread_share:.2%} in every image; "
            f"{each.blind_share:.2%} of the images have no other); mean magnitude {each.mean_magnitude:.2e}"
        )
    out.mkdir(parents=True, exist_ok=True)
    (out / "attack.json").write_text(report.to_json(), encoding="utf-8")
    adversarial.draw_robustness(report).savefig(out / "attack.png", dpi=150)
    typer.echo(f"written: {out / 'attack.json'}, {out / 'attack.png'}")


@app.command()
def bench(
    recipe: Annotated[str | None, typer.Argument(help="A preset's name or a recipe file.")] = None,
    overrides: Overrides = None,
    routing_alone: Annotated[
        str | None, typer.Option(help="Also, or only, measure a routing alone: em or dynamic.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(help="Images a batch; give several [default: 1, 8, 32].")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Least time for each comparison.")] = 4.0,
    bundle: Annotated[
        Path | None, typer.Option(help="An exported bundle [default: the newest in export/models/RECIPE].")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder that gets JSON files and the plot.")] = None,
):
    """Measure speed and memory against the formulation of open implementations, in turns in one process."""
    from capszoo import benchmarking

    if recipe is None and routing_alone is None:
        raise ValueError("a recipe or --routing-alone is needed.")
    reports = {}
    if recipe:
        reports["bench"] = benchmarking.benchmark(
            recipe, overrides or (), batch or benchmarking.SIZES, seconds, bundle, typer.echo
        )
    if routing_alone:
        name = f"bench_{routing_alone}_routing"
        reports[name] = benchmarking.benchmark_routing(routing_alone, seconds / 4, typer.echo)
    for name, report in reports.items():
        benchmarking.show(report)
        if out:
            for path in benchmarking.write(report, out, name):
                typer.echo(f"written: {path}")


@app.command()
def publish(
    recipe: RecipeName,
    overrides: Overrides = None,
    run: Annotated[Path | None, typer.Option(help="Folder of the run [default: runs/RECIPE].")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of presets [default: the package's weights/].")
    ] = None,
    dtype: Annotated[str, typer.Option(help="What weights are stored as: float16 or float32.")] = "float16",
    search: Annotated[
        Path | None, typer.Option(help="Folder of the search that found the recipe's values.")
    ] = None,
):
    """Turn a finished run into a preset's weights, behavioural check and card, with freshly measured numbers."""
    from capszoo.publishing import publish as make
    from capszoo.recipes import read_recipe

    parsed = read_recipe(recipe, overrides or ())
    card = make(parsed, run or Path("runs") / parsed.name, out, dtype, typer.echo, search)
    typer.echo(f"published {card.name}: {card.files['weights.safetensors'].bytes:,} bytes of weights")


@app.command()
def predict(
    images: Annotated[
        list[Path], typer.Argument(help="Pictures; a stereo pair is one, the left view in its left half.")
    ],
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
    # A network trained without labels has capsules that stand for no class.
    latent = [f"capsule {k}" for k in range(outputs["scores"].shape[-1])]
    names = data.class_names if net.preset.recipe.model.head else latent
    for path, scores in zip(images, outputs["scores"], strict=True):
        best = np.argsort(-scores)[:3]
        typer.echo(f"{path.name}: " + "  ".join(f"{names[k]} {scores[k]:.3f}" for k in best))
    if out:
        from capszoo.visualize import draw_predictions

        figure = draw_predictions(
            batch, outputs["scores"], names, reconstructions=outputs.get("reconstruction")
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out)
        typer.echo(f"drawn: {out}")


@app.command()
def visualize(
    images: Annotated[list[Path], typer.Argument(help="Pictures, as for `capszoo predict`.")],
    out: Annotated[Path, typer.Option(help="Folder that gets the drawings.")],
    model: Annotated[str, typer.Option(help="A preset.")] = "dynamic_mnist",
):
    """Draw what the capsules of a model do with pictures: activations, coefficients, votes, reconstructions."""
    import numpy as np

    import capszoo as zoo
    from capszoo.images import read_image
    from capszoo.visualize import overview

    net = zoo.load(model)
    data = net.preset.recipe.data
    batch = np.stack([read_image(path, data.raw_shape) for path in images])
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in overview(net, np.asarray(net.preprocess(batch)), data.class_names):
        figure.savefig(out / f"{name}.png")
        typer.echo(f"drawn: {out / name}.png")


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


def _measured(name, protocols=None, weights=None):
    """The `Measurement`s of a model by the given protocols or those of its card; prints each."""
    from capszoo.progress import counting
    from capszoo.protocols import evaluate as measure

    subject = _trained(name, weights)
    results = []
    for each in protocols or subject.recipe.card.protocols or ["test_error"]:
        command = f"capszoo evaluate {name} --protocol {each}" + (f" --weights {weights}" if weights else "")
        with counting(each) as progress:
            results.append(measure(subject.model, subject.recipe, each, command=command, progress=progress))
        typer.echo(f"{each}: {results[-1].sentence()}")
    return results


def _trained(name, weights=None):
    """A preset, or where `name` is the folder of a run that run, as a `capszoo.protocols.Subject`."""
    from capszoo.protocols import Subject

    if weights is None and (Path(name) / "recipe.yaml").is_file():
        from capszoo.training import load_run

        recipe, model, best = load_run(name)
        return Subject(name, recipe, model, best["step"])
    import capszoo as zoo

    model = zoo.load(name, weights=weights)
    step = None if weights else model.preset.card.training["best step"]
    return Subject(name, model.preset.recipe, model, step)


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
