"""Figures of the page, of whatever numbers there are: errors against what they cost, a paper's table as bars."""

import collections
import math

from capszoo.results.ours import ours_of
from capszoo.zoo.recipes import FORMER_NAMES

# A table that is drawn as bars beside the paper's.
BARS = "hinton_1"
TIME, COSTS = "results_time", "results_costs"


def captions(results) -> dict[str, str]:
    """What each figure shows, by the name of its file without ending; only of figures that there is something for."""
    found = {}
    if _points(results):
        found[TIME] = (
            "Test errors against hours of training on CPUs, without what was trained on a GPU; thin lines are "
            "validation errors on the way."
        )
        found[COSTS] = (
            "Test errors of every routing against numbers of parameters and, where a card has it, the speed of training"
            f" and of inference{_machines(results)}."
        )
    if _bars(results):
        found[f"results_{BARS}"] = (
            "Hinton et al. 2018, Table 1: the paper's errors, and ours where they were measured."
        )
    return found


def draw(results) -> dict:
    """The figures of `captions`, each a matplotlib `Figure`."""
    drawn = {}
    for name in captions(results):
        if name == TIME:
            drawn[name] = _scatter(results, {"hours of training on CPUs": _hours(results)}, curves=True)
        elif name == COSTS:
            drawn[name] = _scatter(results, _costs(results))
        else:
            drawn[name] = _drawn_bars(results)
    return drawn


def _points(results):
    """Test errors by data set: `{data: {name: record}}`, of presets and of cells that are a recipe as it stands.

    Of data sets on which several routings err: the figures compare these, on axes that have no place for 0. Trainings
    with other seeds than a cell's first have their key for a name.
    """
    points = collections.defaultdict(dict)
    for name, record in results.published().items():
        points[record.measurement.data][name] = record
    for trial, record in _plain(results):
        first = trial.seed == trial.cell.seeds[0]
        points[record.measurement.data][results.recipe(trial).name if first else record.key] = record
    points = {data: {n: r for n, r in found.items() if r.measurement.value} for data, found in points.items()}
    return {
        data: found
        for data, found in points.items()
        if len({record.routing for record in found.values()}) > 1
    }


def _plain(results):
    """Trainings and their records, of cells that are a recipe as it stands."""
    trials = [trial for table in results.tables() for trial in results.trials(table)]
    trials = [trial for trial in trials if trial.cell.protocol == "test_error" and trial.plain]
    records = [(trial, results.record(trial)) for trial in trials]
    return [(trial, record) for trial, record in records if record and record.key]


def _machines(results):
    """What the speeds that are drawn were measured on, as the end of a caption."""
    drawn = {name for points in _points(results).values() for name in points}
    processors = sorted({speed.processor for name, speed in results.speeds().items() if name in drawn})
    return f" ({'; '.join(processors)})" if processors else ""


def _costs(results):
    """Label of an axis -> function of the name and the record of a point, which gives its place or None."""
    speeds, places = results.speeds(), {"parameters": lambda name, record: record.parameters}
    for work in ("training", "inference") if speeds else ():
        places[f"images/s in {work}"] = lambda name, record, work=work: getattr(speeds.get(name), work, None)
    return places


def _hours(results):
    """Function of the name and the record of a point: its hours of training, with those of the preset it began from.

    None where one of these was trained on an accelerator, whose hours are others.
    """
    published = results.published()

    def hours(name, record):
        if record.accelerator:
            return None
        name = record.recipe["train"].get("start_from")
        start = published.get(FORMER_NAMES.get(name, name))
        before = hours(name, start) if start else 0
        return None if before is None else record.hours + before

    return hours


def _scatter(results, places, curves=False):
    """Test errors, a row of panels for each data set and in it one for each of `places`, see `_costs`."""
    from matplotlib.figure import Figure

    rows = _points(results)
    routings = sorted({record.routing for points in rows.values() for record in points.values()})
    colours = {routing: f"C{i % 10}" for i, routing in enumerate(routings)}
    markers = {routing: "os^Dv"[i // 10] for i, routing in enumerate(routings)}
    # One kind of place: data sets side by side.
    shape = (1, len(rows)) if len(places) == 1 else (len(rows), len(places))
    figure = Figure(figsize=(5.2 * shape[1] + 1.5, 4 * shape[0]), layout="constrained")
    panels, points = iter(figure.subplots(*shape, squeeze=False).flat), {}
    for data, records in rows.items():
        for label, place in places.items():
            axes = next(panels)
            axes.set(title=data, xlabel=label, ylabel="test error, %", xscale="log", yscale="log")
            placed = {name: (place(name, record), record) for name, record in records.items()}
            # None is not known, and 0 has no place on the axis.
            placed = {name: (x, record) for name, (x, record) in placed.items() if x}
            axes.set_visible(bool(placed))
            for x, record in placed.values():
                points[record.routing] = _point(axes, x, record, colours, markers, curves)
            _named(axes, placed)
            axes.xaxis.set_major_formatter(_thousands)
            axes.xaxis.set_minor_formatter(_few_thousands)
            axes.yaxis.set_major_formatter(_digits)
            axes.yaxis.set_minor_formatter(_few_digits)
            axes.margins(0.1, 0.1)
    if points:
        # Beside the panels: in a panel it would cover points.
        figure.legend(
            [points[routing] for routing in sorted(points)],
            sorted(points),
            title="routing",
            loc="outside right upper",
        )
    return figure


def _thousands(value, at):
    """10k for 10,000; what is below one stays a number: 0.01 hours are no 10m."""
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")(value, at) if value >= 1 else f"{value:g}"


def _few_thousands(value, at):
    """The same at minor ticks, of which only some have room."""
    return _thousands(value, at) if f"{value:e}"[0] in "25" else ""


def _digits(value, at):
    """A number at an axis, without powers of ten."""
    return f"{value:,.6g}"


def _few_digits(value, at):
    """The same at minor ticks, of which only some have room."""
    return _digits(value, at) if f"{value:e}"[0] in "23468" else ""


def _point(axes, x, record, colours, markers, curves):
    """Draws a record at x, with its validation errors on the way if `curves`; returns the point."""
    colour = colours[record.routing]
    if curves and record.curve:
        hours, errors = zip(*record.curve, strict=True)
        axes.plot(hours, [100 * error for error in errors], color=colour, linewidth=0.7, alpha=0.7)
    (point,) = axes.plot(
        [x], [100 * record.measurement.value], markers[record.routing], color=colour, label=record.routing
    )
    return point


def _named(axes, placed):
    """Writes names beside points, towards the middle of the panel; `placed` is `{name: (x, record)}`."""
    logarithms = [math.log(x) for x, _ in placed.values()]
    for name, (x, record) in placed.items():
        # One more seed.
        if name == record.key:
            continue
        right = math.log(x) > (min(logarithms) + max(logarithms)) / 2
        axes.annotate(
            name,
            (x, 100 * record.measurement.value),
            (-4, 3) if right else (4, 3),
            textcoords="offset points",
            ha="right" if right else "left",
            fontsize=6,
        )


def _bars(results):
    """The cells of the table with the paper's value and ours, where at least one is ours."""
    table = results.tables().get(BARS)
    if table is None:
        return {}
    bars = {name: (cell.paper, ours_of(results, BARS, name)) for name, cell in table.cells.items()}
    return bars if any(ours for _, ours in bars.values()) else {}


def _drawn_bars(results):
    from matplotlib.figure import Figure

    bars = _bars(results)
    places = range(len(bars))
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.bar(
        [p - 0.2 for p in places], [100 * (paper or 0) for paper, _ in bars.values()], 0.4, label="paper"
    )
    known = [(p, ours) for p, (_, ours) in zip(places, bars.values(), strict=True) if ours]
    data = ", ".join(sorted({r.measurement.data for _, ours in known for r in ours.records.values()}))
    axes.bar(
        [p + 0.2 for p, _ in known], [100 * ours.mean for _, ours in known], 0.4, label=f"ours, on {data}"
    )
    axes.set_xticks(list(places), list(bars), rotation=30, ha="right", fontsize="small")
    axes.set_ylabel("test error, %")
    axes.legend()
    return figure
