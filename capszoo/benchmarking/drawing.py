"""A plot of how a routing alone scales."""

AXES = {
    "batch": "images a batch",
    "types": "types",
    "grid": "height and width of the grid",
    "iterations": "iterations",
}


def draw_scaling(report):
    """Milliseconds per image of a routing alone over batch, types, grid and iterations, as a matplotlib `Figure`.

    Above inference, below training (forward and all gradients), both axes logarithmic; one line for each form. What
    does not change in a panel is in the middle of its own sweep.

    where:
      report: what `benchmark_routing` returned.
    """
    from matplotlib.figure import Figure

    rows = report["speed"]
    forms = list(dict.fromkeys(row["variant"] for row in rows))
    axes = [axis for axis in AXES if axis in {row["axis"] for row in rows}]
    figure = Figure(figsize=(1 + 3 * len(axes), 6), layout="constrained")
    panels = figure.subplots(2, len(axes), sharey="row", squeeze=False)
    for line, work in zip(panels, ("inference", "training"), strict=True):
        for panel, axis in zip(line, axes, strict=True):
            for form in forms:
                points = [r for r in rows if (r["work"], r["axis"], r["variant"]) == (work, axis, form)]
                values = [row[axis] for row in points]
                panel.plot(values, [1e3 / row["images_per_second"] for row in points], "o-", label=form)
                low, high = zip(*([1e3 / speed for speed in row["spread"]] for row in points), strict=True)
                panel.fill_between(values, low, high, alpha=0.15, linewidth=0)
            panel.set(xscale="log", yscale="log", xlabel=AXES[axis])
            panel.set_xticks(values, values, minor=False)
            panel.xaxis.set_minor_locator(_nowhere())
        line[0].set(ylabel=f"{work}: ms per image")
    panels[0, 0].legend(fontsize="small")
    machine = report["machine"]
    figure.suptitle(f"{report['subject']}; {machine['processor']}, {machine['cpus']} CPUs", fontsize="medium")
    return figure


def _nowhere():
    from matplotlib.ticker import NullLocator

    return NullLocator()
