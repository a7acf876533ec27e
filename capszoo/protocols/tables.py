"""Tables of reports for the terminal."""

import sys

from rich.console import Console
from rich.table import Table


def show(table):
    """Prints a table: as wide as the terminal, and wide enough for every column where there is none."""
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def viewpoint_table(comparison) -> Table:
    """Half of Table 2 of Hinton et al. 2018: errors on novel and familiar viewpoints, the paper's beside ours."""
    table = Table(box=None, header_style="bold", title=f"test error by {comparison.factor}")
    table.add_column("viewpoints")
    for column in comparison.names:
        table.add_column(f"{column}: {comparison.names[column]}", justify="right")
        table.add_column("paper", justify="right")
    for kind, row in comparison.errors.items():
        cells = (cell for m in row.values() for cell in (f"{m.value:.2%} (n={m.n})", f"{m.paper:.1%}"))
        table.add_row(kind, *cells)
    return table


def robustness_table(report) -> Table:
    """Shares of every attack by epsilon; a black box names whose images it was shown."""
    table = Table(box=None, header_style="bold")
    table.add_column("model")
    table.add_column("attack")
    for point in report.curves[0].points:
        table.add_column(f"{point.epsilon:g}", justify="right")
    for curve in report.curves:
        model = (
            curve.model if curve.model == curve.made_with else f"{curve.model}, images of {curve.made_with}"
        )
        attack = f"{curve.attack} {'targeted' if curve.targeted else 'untargeted'}, {curve.metric}"
        table.add_row(model, attack, *(f"{point.value:.1%}" for point in curve.points))
    return table


def sparsity_table(report) -> Table:
    """Layers of capsules before and after iterative inference: how many are long, and which."""
    table = Table(box=None, header_style="bold", title=f"{report.n} images of {report.data} {report.split}")
    for column in ("layer", "condition"):
        table.add_column(column)
    for column in ("active", "Hoyer", "longest", "labelled longest", "labelled", "others"):
        table.add_column(column, justify="right")
    for layer, conditions in report.layers.items():
        for condition, s in conditions.items():
            share = "" if s.labelled_longest is None else f"{s.labelled_longest:.1%}"
            lengths = ("" if length is None else f"{length:.3f}" for length in (s.labelled, s.others))
            first = (f"{s.active:.2f}", f"{s.hoyer:.3f}", f"{s.largest:.3f}")
            table.add_row(layer, condition, *first, share, *lengths)
    return table


def free_inference_table(report) -> Table:
    """The network's inference beside free inference: bound, reconstruction, and what a classifier makes of both."""
    title = f"{report.n} images of {report.data} {report.split}; turned by up to {report.max_angle:g} degrees"
    table = Table(box=None, header_style="bold", title=title)
    for column in ("images", "inference"):
        table.add_column(column)
    for column in ("loss, nats", "squared error", "right on presences", "with poses"):
        table.add_column(column, justify="right")
    for condition, answer in report.network.items():
        for inference, found in (("network", answer), (f"{report.steps} steps", report.free[condition])):
            shares = (f"{share:.1%}" for share in (found.error, found.presences, found.poses))
            table.add_row(condition, inference, f"{found.loss:.1f}", *shares)
    return table


def likelihood_table(report) -> Table:
    """Log-likelihoods in nats for each number of an image, models' beside Gaussians'."""
    title = f"nats a number, {report.n} images of {report.data} {report.split}, noise {report.noise:g}"
    table = Table(box=None, header_style="bold", title=title)
    table.add_column("")
    for column in (
        "lower bound",
        f"of {report.samples} samples",
        "above the Gaussian",
        "surest parent",
        "parents",
    ):
        table.add_column(column, justify="right")
    for name, values in report.models.items():
        gain = f"{values['gain']:+.4f} (+- {values['interval']:.4f})"
        bounds = (f"{values['bound']:.4f}", f"{values['importance']:.4f}", gain)
        table.add_row(name, *bounds, f"{report.choice[name]:.3f}", f"{report.parents[name]:.1f}")
    for name in ("gaussian", "independent", "ceiling"):
        table.add_row(name, "", f"{getattr(report, name):.4f}")
    return table
