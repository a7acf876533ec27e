"""Figures of the page, of whatever numbers there are: errors against hours and parameters, a paper's table as bars."""

import collections

from capszoo.results.ours import ours_of

# A table that is drawn as bars beside the paper's.
BARS = "hinton_1"
TIME, PARAMETERS = "results_time", "results_parameters"


def captions(results) -> dict[str, str]:
    """What each figure shows, by the name of its file without ending; only of figures that there is something for."""
    found = {}
    if _points(results):
        found[TIME] = "Test errors against hours of training; thin lines are validation errors on the way."
        found[PARAMETERS] = "Test errors against numbers of parameters."
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
            drawn[name] = _scatter(results, "hours of training", lambda record: record.hours, curves=True)
        elif name == PARAMETERS:
            drawn[name] = _scatter(results, "parameters", lambda record: record.parameters)
        else:
            drawn[name] = _drawn_bars(results)
    return drawn


def _points(results):
    """Test errors by data set: `{data: {name: record}}`, of presets and of the trainings of cells."""
    points = collections.defaultdict(dict)
    for name, record in results.published().items():
        points[record.measurement.data][name] = record
    for record in results.records.values():
        if record.measurement.protocol == "test_error":
            points[record.measurement.data][record.key] = record
    return dict(points)


def _scatter(results, label, position, curves=False):
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    panels = _points(results)
    routings = sorted({record.routing for panel in panels.values() for record in panel.values()})
    colours = {routing: f"C{i}" for i, routing in enumerate(routings)}
    figure = Figure(figsize=(5.2 * len(panels), 4), layout="constrained")
    for axes, (data, records) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for name, record in records.items():
            colour, x, y = colours[record.routing], position(record), 100 * record.measurement.value
            if curves and record.curve:
                hours, errors = zip(*record.curve, strict=True)
                axes.plot(hours, [100 * error for error in errors], color=colour, linewidth=0.7, alpha=0.7)
            axes.plot([x], [y], "o", color=colour, label=record.routing)
            # A training of a cell has a hash for a name.
            axes.annotate(
                name if not record.key else "", (x, y), (4, 3), textcoords="offset points", fontsize=6
            )
        axes.set(title=data, xlabel=label, ylabel="test error, %", xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
            axis.set_major_formatter(LogFormatter())
        axes.margins(0.15)
        handles, labels = axes.get_legend_handles_labels()
        by_routing = dict(zip(labels, handles, strict=True))
        axes.legend(by_routing.values(), by_routing.keys(), fontsize="x-small", title="routing")
    return figure


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
