"""The page of all tables: every cell with the paper's value, ours, and how it was come by; or what it would cost."""

import collections
import shlex
from pathlib import Path

from capszoo import config, plugins
from capszoo.protocols import get_protocol
from capszoo.results import figures
from capszoo.results.ours import ours_of
from capszoo.results.records import measured_in, published, read_records, write_records
from capszoo.results.tables import OwnTables
from capszoo.results.trials import Results
from capszoo.training.files import locked, remove_temporary, write_figure, write_text

PAGE = "results.md"
HEAD = """# The papers' tables

Written by `capszoo reproduce`; nobody types a number here. Beside the paper's value stands ours with its 95 %
interval: of one training Wilson's, over the test images; of several the mean, the deviation and the interval of the
mean, over trainings, unless all are equal. Steps are those of one training, hours of all together. Each says which
data it was measured on: **synthnorb is a rendered twin of smallNORB, and affnist_synth one of affNIST; their numbers
are not those of the published sets.** Where rows that a table compares stand on different sets of one name, such as
synthnorb rendered on two machines, each has the first digits of its images' fingerprint. What stands without a number
of ours was not afforded yet, with what it would cost on two CPU cores. A number comes from a published card, or from
`results.json` beside this page. Of a training the weights of the least error on validation images are measured, or,
where its data have none, as most recipes of the twin and some of digits, those of its end. Where test errors had a say
in which of several recipes is published, its card says so. Cells of one training, however short, are so for want of
hours on two cores. What was tried besides, and what it gave, is in [notes.md](notes.md).
"""
ABOVE = """## Published weights above the paper's value

Where the paper's value lies within the 95 % interval of ours, chance alone may be what is missing; rows of synthnorb
are of other pictures than the paper's. What was tried, and what it gave, stands under the preset's name in
[notes.md](notes.md).
"""
# Seconds. Drawing takes some, and several commands may be at their end.
LONG = 300
COLUMNS = ("cell", "paper", "ours", "seeds", "data", "steps", "hours", "how")


def paper_text(cell) -> str:
    """The paper's value with its unit."""
    if cell.paper is None:
        return ""
    unit = get_protocol(cell.protocol).unit
    return f"{cell.paper:g} {unit}" if unit else f"{100 * cell.paper:.4g}%"


def row_of(results, table, name, versions=None) -> dict[str, str]:
    """A cell as a row of the page.

    where:
      versions: those of the table, see `_versions_in`, for who makes all its rows.
    """
    cell = results.tables()[table].cells[name]
    row = dict.fromkeys(COLUMNS, "")
    row |= {"cell": f"{name} ({cell.note.strip()})" if cell.note else name, "paper": paper_text(cell)}
    if not cell.recipe:
        return row | {"ours": "only quoted"}
    trials = [trial for trial in results.trials(table) if trial.name == name]
    ours = ours_of(results, table, name)
    if ours is None:
        why = "no data" if any(map(results.lacks, trials)) else "not afforded yet"
        return row | {
            "ours": f"{why}, {_cost(results, table, name)}",
            "seeds": f"0 of {len(cell.seeds)}",
            "how": f"`{results.command(trials[0])}`",
        }
    records = list(ours.records.values())
    first = records[0]
    trained = [trial for trial in trials if trial.seed in ours.records and ours.records[trial.seed].key]
    how = results.command(trained[0]) if trained else first.measurement.command
    return row | {
        "ours": ours.text(),
        "seeds": f"{len(records)}"
        if len(records) == len(trials)
        else f"{len(records)} of {len(trials)}; the rest {_cost(results, table, name)}",
        "data": _data(records, _versions_in(results, table) if versions is None else versions),
        "steps": " ".join(dict.fromkeys(f"{record.steps:,}" for record in records)),
        "hours": _hours(records),
        "how": f"`{how}`" + ("" if trained else " (published)"),
    }


def _cost(results, table, name, folder=None):
    """What is missing of a cell: so many hours, or nothing but the missing trainings of a cell before it.

    where:
      folder: the common one, whose trainings cost no hours, and at which others are.
    """
    trainings, hours = {}, 0.0
    for trial in results.trials(table):
        if results.record(trial) is None and not (folder and results.state(trial, folder) == "running"):
            missing = None if results.trained(trial, folder) else results.training(trial)
            trainings.setdefault(trial.name, []).append(missing)
            hours += results.hours(trial, folder) if trial.name == name else 0.0
    if name not in trainings:  # Somebody has begun with it, or ended, since it was looked at.
        return ""
    first = next(other for other, missing in trainings.items() if missing == trainings[name])
    if first != name and None not in trainings[name]:
        return f'with "{first}"'
    if not hours:
        return "cost not estimated"
    return f"about {hours:,.0f} h" if hours >= 100 else f"about {hours:.3g} h"


def _data(records, versions):
    """What was measured on. Of one name there may be several sets of images, such as two renderings of synthnorb.

    A row of one set has its fingerprint where other rows of the table, of the same protocol and the same options of the
    data, are of another one.
    """
    first, own = records[0].measurement, _images(records)
    name = first.data
    if len(own) > 1:
        name += f" ({len(own)} versions)"
    elif any(len(versions[kind]) > 1 for kind, _ in own):
        name += f" (images {first.fingerprint[:8]})"
    return f"{name}, n={first.n:,}"


def _versions_in(results, table) -> dict[tuple, set[str]]:
    """The fingerprints of the rows of a table that are of one set of images each, by their kind, see `_images`."""
    versions = collections.defaultdict(set)
    for name in results.tables()[table].cells:
        ours = ours_of(results, table, name)
        images = _images(ours.records.values()) if ours else ()
        if len(images) == 1:
            ((kind, fingerprint),) = images
            versions[kind].add(fingerprint)
    return versions


def _images(records):
    """The sets of images of a cell's numbers: each its kind, what ought to make them the same, and its fingerprint."""
    found = set()
    for record in records:
        measurement = record.measurement
        data = config.parse_section("data", record.recipe["data"])
        found.add(((measurement.data, measurement.protocol, data), measurement.fingerprint))
    return found


def _hours(records):
    """Of all trainings together, and what they ran on where that was no CPU."""
    devices = dict.fromkeys(record.accelerator for record in records if record.accelerator)
    hours = sum(record.hours for record in records)
    if devices:
        return f"{hours:.2f} on {', '.join(devices)}"
    return f"{hours:.1f}" if hours >= 0.95 else f"{hours:.2f}"


def state_rows(results, table, folder) -> list[dict[str, str]]:
    """The cells of a table as rows for the terminal, each with its state and, where it is missing, its cost."""
    rows = []
    for name, cell in results.tables()[table].cells.items():
        trials = [trial for trial in results.trials(table) if trial.name == name]
        states = {trial: results.state(trial, folder) for trial in trials}
        ours = ours_of(results, table, name)
        missing = {"missing", "waiting"} & set(states.values())
        counts = collections.Counter(states.values())
        rows.append(
            {
                "cell": name,
                "state": ", ".join(f"{count} {state}" for state, count in counts.items()) or "quoted",
                "paper": paper_text(cell),
                "ours": ours.text() if ours else "",
                "cost": _cost(results, table, name, folder) if missing else "",
            }
        )
    return rows


def rows_above(results) -> list[dict[str, str]]:
    """The published shares of wrong images that lie above the paper's value."""
    rows = []
    for paper in results.papers:
        for table, cells in paper.tables.items():
            for name, cell in cells.cells.items():
                if _is_above(ours_of(results, table, name), cell.paper):
                    row = row_of(results, table, name)
                    shown = {column: row[column] for column in ("cell", "paper", "ours", "data")}
                    rows.append({"preset": f"[{cell.recipe}](notes.md#{cell.recipe})", **shown})
    return rows


def _is_above(ours, paper):
    if ours is None or paper is None:
        return False
    records = ours.records.values()
    shares = all(not record.key and record.measurement.wrong is not None for record in records)
    return shares and ours.mean > paper


def _markdown(rows, columns):
    """The lines of a table, and an empty one."""
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    # A line break, which YAML may end a note with, would end the row.
    cells = ([" ".join(row[column].split()).replace("|", r"\|") for column in columns] for row in rows)
    return [*lines, *(f"| {' | '.join(row)} |" for row in cells), ""]


def render(results) -> str:
    """The page as Markdown: a function of tables, cards and records; a user's own tables come first."""
    own = [paper for paper in results.papers if isinstance(paper, OwnTables)]
    lines = [HEAD, *(line for paper in own for line in _tables_of(results, paper, paper.file))]
    for name, caption in figures.captions(results).items():
        lines += [f"![{caption}]({name}.png)", "", caption, ""]
    if above := rows_above(results):
        lines += [ABOVE, *_markdown(above, above[0])]
    lines += [line for paper in results.papers if paper not in own for line in _tables_of(results, paper)]
    return "\n".join(lines).rstrip() + "\n"


def _tables_of(results, paper, file=""):
    """The lines of a paper's tables, or of those in a user's file."""
    lines = [f"## {paper.paper}", ""]
    for name, table in paper.tables.items():
        command = shlex.join(plugins.command("reproduce", file or name))
        lines += [f"### {table.title}", "", f"`{command}`. {table.note}".rstrip(), ""]
        versions = _versions_in(results, name)
        lines += _markdown([row_of(results, name, cell, versions) for cell in table.cells], COLUMNS)
    return lines


def gather(papers, folder, docs) -> Results:
    """All numbers there are; of two of one training the one of the later day counts.

    They come from cards, from the zoo's own ledger, from the one beside the page, and from the common folder.
    """
    return Results(papers, [*read_records(published()), *read_records(docs), *measured_in(folder)])


def write(results, docs) -> list[Path]:
    """Writes page, figures and ledger into a folder; returns their paths."""
    docs = Path(docs)
    with locked(docs, f"another process has been writing in {docs} for long.", LONG):
        remove_temporary(docs)
        # Another command may have written there since this one began.
        results = Results(results.papers, [*read_records(docs), *results.records.values()])
        write_records(docs, results.records.values())
        paths = [docs / PAGE]
        write_text(paths[0], render(results))
        for name, figure in figures.draw(results).items():
            paths.append(docs / f"{name}.png")
            write_figure(figure, paths[-1], dpi=110)
    return paths
