"""Commands that measure: the papers' protocols, and speed."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from capszoo import plugins
from capszoo.cli.app import Overrides, Trained, Weights, app, trained

Set = Annotated[
    list[str] | None, typer.Option("--set", help="An option of the protocol, e.g. images=100; give several.")
]
Out = Annotated[
    Path | None, typer.Option(help="Folder that gets each result as JSON, and the protocol's drawings.")
]


@app.command()
def evaluate(
    name: Trained,
    protocol: Annotated[
        list[str] | None, typer.Option(help="One or more of `capszoo protocols` [default: the card's].")
    ] = None,
    options: Set = None,
    weights: Weights = None,
    out: Out = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all results, a list, to this file.")
    ] = None,
):
    """Measure a preset as its paper did, and print the paper's number beside it.

    What needs data that are not there is said and left out; asked for by --protocol it is an error, after all others.
    """
    from capszoo.data import DataNotFound
    from capszoo.training.files import make_folder, write_text

    subject = trained(name, weights)
    if json_file:  # What is measured for hours must find its place.
        make_folder(json_file.parent)
        if json_file.is_dir():
            raise IsADirectoryError(f"--json is a folder, and a file is needed: {json_file}")
    names = protocol or subject.recipe.card.protocols or ["test_error"]
    for each in names:  # What cannot be measured is better known now than after hours of the others.
        _protocol(each, options).require_fit([subject])
    results, missing = [], []
    try:
        for each in names:
            try:
                result, rows, notes = _measure("evaluate", [subject], each, options, out, weights)
            except DataNotFound as error:
                missing.append(f"{each}: {error}")
                continue
            _print(rows if len(rows) > 1 else [], notes)
            results.append(result.to_mapping())
    except BaseException:
        if json_file and results:
            write_text(json_file, json.dumps(results, indent=1) + "\n")
        raise
    if json_file:
        write_text(json_file, json.dumps(results, indent=1) + "\n")
    if missing and (protocol or not results):
        raise DataNotFound("\n".join(missing))
    for text in missing:
        typer.echo(f"not measured: {text}")


@app.command()
def compare(
    names: Annotated[list[str], typer.Argument(help="Presets with weights, or folders of runs.")],
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="Measure all by these of `capszoo protocols` [default: what their cards say]."),
    ] = None,
    options: Set = None,
    out: Out = None,
    again: Annotated[
        bool, typer.Option("--again", help="Measure again instead of reading the cards; needs the data.")
    ] = False,
):
    """Show presets beside each other and beside their papers: architectures by what was measured of them.

    Table 3 of Faria 2019: `capszoo compare kernel_mnist lstm_mnist consensus_em_mnist kernel_smallnorb ...`.
    Table 2 of Hinton et al. 2018: `capszoo compare RUN_CNN RUN_CAPSULES --protocol viewpoints`.
    """
    from capszoo.cli.tables import comparison_table
    from capszoo.protocols.tables import show
    from capszoo.zoo import presets

    if protocol:
        subjects = [trained(name) for name in names]
        _refuse({"--again": again}, "reads no cards with --protocol")
        for each in protocol:
            _require_comparable(subjects, _protocol(each, options), out)
        for each in protocol:
            _compare(subjects, each, options, out)
        return
    _refuse({"--out": out, "--set": options}, "needs --protocol")
    metrics = []
    for name in names:
        preset = presets.get_preset(name)
        if preset.card is None and not preset.run:
            raise ValueError(f"{name} has no weights, so nothing was measured.")
        if preset.card is None or not preset.card.metrics:
            raise ValueError(f"{name} was not measured: give --protocol, e.g. --protocol test_error.")
        metrics.append((preset, _measured_again(name) if again else preset.card.metrics))
    show(comparison_table(metrics))


@app.command("protocols")
def list_protocols():
    """List the protocols: what each measures, how it is described, and its options."""
    import dataclasses

    from capszoo.protocols import protocols
    from capszoo.protocols.tables import show, table_of

    rows = [
        {
            "protocol": name,
            "measures": cls.metric,
            "source": cls.source,
            "options": ", ".join(field.name for field in dataclasses.fields(cls)),
        }
        for name, cls in protocols().items()
    ]
    show(table_of(rows))


@app.command()
def bench(
    recipe: Annotated[str | None, typer.Argument(help="A preset's name or a recipe file.")] = None,
    overrides: Overrides = None,
    routing_alone: Annotated[
        str | None, typer.Option(help="Also, or only, measure a routing alone: em or dynamic.")
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            help="Images a batch; give several [default: 1, 8, 32], or with --side one [default: 8]."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="For so many seconds rounds of each comparison begin; 5 to 40 rounds [default: 4]."
        ),
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option(help="An exported bundle [default: the newest in export/models/RECIPE].")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder that gets JSON files and the plot.")] = None,
    side: Annotated[
        list[int] | None,
        typer.Option(
            help="Only memory of a training step, for square images of so many pixels; give several."
        ),
    ] = None,
    classes: Annotated[int | None, typer.Option(help="With --side: another number of classes.")] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record", help="Only training and inference of the preset, or of all, into their cards."
        ),
    ] = False,
):
    """Measure speed and memory against the formulation of open implementations, in turns in one process."""
    from capszoo import benchmarking, list_models
    from capszoo.benchmarking.measuring import require_seconds
    from capszoo.benchmarking.routing_alone import sweep
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.training.files import make_folder

    if recipe is None and (side or (routing_alone is None and not record)):
        raise ValueError("a recipe, --routing-alone or --record is needed.")
    if side:
        _refuse({"--bundle": bundle, "--seconds": None if routing_alone else seconds}, "is not for --side")
        if batch and len(batch) > 1:
            raise ValueError("--side takes one --batch.")
    else:
        _refuse({"--classes": classes}, "needs --side")
    if recipe is None and not record:
        _refuse({"--batch": batch, "--bundle": bundle}, "needs a recipe")
    seconds = benchmarking.SECONDS if seconds is None else seconds
    if record:
        _refuse(
            {
                "an override": overrides,
                "--batch": batch,
                "--bundle": bundle,
                "--out": out,
                "--routing-alone": routing_alone,
                "--side": side,
            },
            "is not for --record",
        )
        with TerminalProgress() as progress:
            benchmarking.record_speeds(
                [recipe] if recipe else list_models(pretrained=True), seconds, progress
            )
        return

    require_seconds(seconds)
    if out:  # What is measured for minutes must find its place.
        make_folder(out)
    if routing_alone:
        sweep(routing_alone)  # A wrong name is better known now than after minutes of the others.

    def tell(name, report):
        benchmarking.show(report)
        if out:
            for path in benchmarking.write(report, out, name):
                typer.echo(f"written: {path}")

    if side:
        with TerminalProgress() as progress:
            size = batch[0] if batch else 8
            report = benchmarking.benchmark_sides(recipe, side, overrides or (), size, classes, progress)
        tell("bench_sides", report)
    elif recipe:
        with TerminalProgress() as progress:
            report = benchmarking.benchmark(
                recipe, overrides or (), batch or benchmarking.SIZES, seconds, bundle, progress
            )
        tell("bench", report)
    if routing_alone:
        with TerminalProgress() as progress:
            report = benchmarking.benchmark_routing(routing_alone, seconds / 4, progress)
        tell(f"bench_{routing_alone}_routing", report)


def _refuse(given, reason):
    """Errors: `ValueError` for the first of these options, by name, that was given."""
    for option, value in given.items():
        # 0 has been given.
        if value is not None and value is not False and value != []:
            raise ValueError(f"{option} {reason}.")


def _measured_again(name):
    """The `Measurement`s of a preset by the protocols that its card has numbers of; prints each."""
    from capszoo.zoo.presets import get_preset

    subject, results = trained(name), []
    for metric in get_preset(name).card.metrics:
        result, _, notes = _measure("evaluate", [subject], metric.protocol)
        _print([], notes)
        results.append(result)
    return results


def _require_comparable(subjects, protocol, out):
    """Errors: `ConfigError` where the protocol does not fit; `ValueError` for results that would share a folder."""
    if not _looks_at_one(protocol):
        protocol.require_fit(subjects)
        return
    for subject in subjects:
        protocol.require_fit([subject])
    folders = [Path(subject.name).name for subject in subjects]
    if out and len(set(folders)) < len(folders):
        raise ValueError(f"--out needs models of different names. Received: {', '.join(folders)}")


def _looks_at_one(protocol):
    return protocol.models == (1, 1)


def _compare(subjects, name, options, out):
    """Measures subjects by a protocol: together, where it looks at several, or one after the other."""
    rows, notes = [], []
    if _looks_at_one(_protocol(name, options)):
        for subject in subjects:
            folder = out and out / Path(subject.name).name
            _, its_rows, its_notes = _measure("evaluate", [subject], name, options, folder)
            rows += [{"model": subject.name, **row} for row in its_rows]
            notes += [f"{subject.name}: {note}" for note in its_notes]
    else:
        _, rows, notes = _measure("compare", subjects, name, options, out)
    _print(rows, notes)


def _protocol(name, options):
    """The protocol of that name with the options of the command line."""
    from capszoo.config import apply_overrides
    from capszoo.protocols import get_protocol

    if wrong := [option for option in options or () if "=" not in option]:
        raise ValueError(f"--set is written option=value. Received: {wrong[0]!r}")
    given = apply_overrides({}, [f"options.{option}" for option in options or ()]).get("options", {})
    return get_protocol(name, given)


def _measure(verb, subjects, name, options=None, out=None, weights=None):
    """A protocol's result, its rows and its notes; writes it with its drawings into `out`."""
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.training.files import make_folder, write_figure, write_text

    if out:  # What is measured for hours must find its place.
        make_folder(out)
    protocol = _protocol(name, options)
    words = plugins.command(verb, *(subject.name for subject in subjects), "--protocol", name)
    for flag, values in (("--set", options or ()), ("--weights", [weights] if weights else ())):
        words += [word for value in values for word in (flag, str(value))]
    with TerminalProgress() as progress:
        result = protocol.measure(subjects, command=shlex.join(words), progress=progress)
    if out:
        paths = [out / f"{name}.json"]
        write_text(paths[0], result.to_json())
        for drawing, figure in protocol.draw(subjects, result).items():
            paths.append(out / f"{name}_{drawing}.png")
            write_figure(figure, paths[-1], dpi=150)
        typer.echo(f"written: {', '.join(map(str, paths))}")
    return result, protocol.rows(result), protocol.notes(result)


def _print(rows, notes):
    from capszoo.protocols.tables import show, table_of

    if rows:
        show(table_of(rows))
    for note in notes:
        typer.echo(note)
