"""Commands that measure: the papers' protocols, and speed."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from capszoo.cli.app import Overrides, Trained, Weights, app, trained


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
    """Show presets beside each other and beside their papers: architectures by what was measured of them.

    Table 3 of Faria 2019: `capszoo compare kernel_mnist lstm_mnist consensus_em_mnist kernel_smallnorb ...`.
    """
    from capszoo.cli.tables import comparison_table
    from capszoo.protocols.tables import show
    from capszoo.zoo import presets

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
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.protocols import compare_viewpoints
    from capszoo.protocols.tables import show, viewpoint_table

    with TerminalProgress() as progress:
        comparison = compare_viewpoints(
            trained(cnn),
            trained(capsules),
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
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.protocols import adversarial
    from capszoo.protocols.tables import robustness_table, show

    command = f"capszoo attack {name} --images {images} --loss {loss} --out {out}"
    command += (f" --against {against}" if against else "") + (f" --source {source}" if source else "")
    command += "".join(f" --epsilon {each:g}" for each in epsilon or ())
    with TerminalProgress() as progress:
        report = adversarial.measure_robustness(
            [trained(each) for each in (name, against) if each],
            trained(source) if source else None,
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
    from capszoo.progress.terminal import TerminalProgress

    if recipe is None and routing_alone is None:
        raise ValueError("a recipe or --routing-alone is needed.")
    reports = {}
    if recipe:
        with TerminalProgress() as progress:
            reports["bench"] = benchmarking.benchmark(
                recipe, overrides or (), batch or benchmarking.SIZES, seconds, bundle, progress
            )
    if routing_alone:
        name = f"bench_{routing_alone}_routing"
        with TerminalProgress() as progress:
            reports[name] = benchmarking.benchmark_routing(routing_alone, seconds / 4, progress)
    for name, report in reports.items():
        benchmarking.show(report)
        if out:
            for path in benchmarking.write(report, out, name):
                typer.echo(f"written: {path}")


def _measured(name, protocols=None, weights=None):
    """The `Measurement`s of a model by the given protocols or those of its card; prints each."""
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.protocols import evaluate as measure

    subject = trained(name, weights)
    results = []
    for each in protocols or subject.recipe.card.protocols or ["test_error"]:
        command = f"capszoo evaluate {name} --protocol {each}" + (f" --weights {weights}" if weights else "")
        with TerminalProgress() as progress:
            results.append(measure(subject.model, subject.recipe, each, command=command, progress=progress))
        typer.echo(f"{each}: {results[-1].sentence()}")
    return results
