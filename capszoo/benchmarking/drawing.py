"""Plots of how a routing alone scales, and of memory against the side of images."""

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


def draw_sides(report):
    """Megabytes of a training step over the side of images, as a matplotlib `Figure`; one line for each form.

    where:
      report: what `benchmark_sides` returned.
    """
    from matplotlib.figure import Figure

    rows = [row for row in report["memory"] if row["bytes"] is not None]
    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    for form in dict.fromkeys(row["variant"] for row in rows):
        points = [row for row in rows if row["variant"] == form]
        axes.plot([row["side"] for row in points], [row["bytes"] / 1e6 for row in points], "o-", label=form)
    sides = sorted({row["side"] for row in rows})
    axes.set(xscale="log", yscale="log", xlabel="side of the image, pixels", ylabel="MB of one training step")
    axes.set_xticks(sides, sides, minor=False)
    axes.xaxis.set_minor_locator(_nowhere())
    axes.legend(fontsize="small")
    first = report["memory"][0]
    axes.set_title(
        f"{report['subject']}, {first['batch']} images, {first['classes']} classes", fontsize="medium"
    )
    return figure


def _nowhere():
    from matplotlib.ticker import NullLocator

    return NullLocator()
