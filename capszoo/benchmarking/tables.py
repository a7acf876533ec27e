"""Measurements in the terminal."""

from rich.table import Table

from capszoo.benchmarking.machine import busy
from capszoo.benchmarking.networks import OPEN, OURS, SINGLE
from capszoo.protocols import tables

# Columns behind the speeds: which other form a ratio is to, and how it is found in the rows of all forms.
RATIOS = {
    f"{OURS} / {OPEN}": (OPEN, lambda rows: rows[OURS]["faster_than"][OPEN]),
    "by CPU time": (OPEN, lambda rows: rows[OURS]["less_cpu_than"][OPEN]),
    f"time / {SINGLE}": (SINGLE, lambda rows: rows[SINGLE]["faster_than"][OURS]),
}


def show(report):
    """Prints a report of `benchmark`, `benchmark_routing` or `benchmark_sides`."""
    bundle = [row for row in report["speed"] if row["work"] == "bundle"]
    if report["speed"]:
        tables.show(speed_table({**report, "speed": [row for row in report["speed"] if row not in bundle]}))
    if bundle:
        tables.show(speed_table({**report, "speed": bundle}))
        for row in bundle:
            if row["batch"] == 1:
                print(f"latency of one image, {row['variant']}: {1e3 * row['seconds']:.1f} ms")
    if any(row["bytes"] is not None for row in report["memory"]):
        tables.show((sides_table if "side" in report["memory"][0] else memory_table)(report))
    if report.get("roofline"):
        tables.show(roofline_table(report["roofline"]))
    for name, seconds in report.get("startup", {}).items():
        print(f"start-up, {name}: {seconds:.2f} s")
    machine = report["machine"]
    print(
        f"{machine['processor']}, {machine['cpus']} CPUs {', '.join(machine['accelerators'])}; {machine['libraries']}"
    )
    for note in report["notes"]:
        print(note)
    if busy(machine):
        compared = OPEN in {row["variant"] for row in report["speed"]}
        trusted = "trust the CPU column more than the others" if compared else "measure again when it is idle"
        print(f"The machine was busy (load {machine['load_before']:.1f}): {trusted}.")


def speed_table(report) -> Table:
    """Images per second of every form, and ratios, one row for each work and size."""
    groups = {}
    for row in report["speed"]:
        key = (row["work"], row.get("axis", "images a batch"), row[row.get("axis", "batch")])
        groups.setdefault(key, {})[row["variant"]] = row
    names = list(dict.fromkeys(row["variant"] for row in report["speed"]))
    table = Table(box=None, header_style="bold", title=f"images/s, {report['subject']}")
    for column in ("work", "", *names):
        table.add_column(column, justify="left" if column in ("work", "") else "right")
    ratios = {column: pick for column, (other, pick) in RATIOS.items() if {OURS, other} <= set(names)}
    for column in ratios:
        table.add_column(column, justify="right")
    for (work, axis, value), rows in groups.items():
        speeds = [f"{rows[name]['images_per_second']:,.1f}" for name in names]
        table.add_row(work, f"{axis} {value}", *speeds, *(f"{pick(rows):.2f}" for pick in ratios.values()))
    return table


def sides_table(report) -> Table:
    """Peak memory of a training step in megabytes, a row for each side of images, a column for each form."""
    rows = report["memory"]
    forms = list(dict.fromkeys(row["variant"] for row in rows))
    first = rows[0]
    title = (
        f"MB of one training step, {report['subject']}, {first['batch']} images, {first['classes']} classes"
    )
    table = Table(box=None, header_style="bold", title=title)
    for column in ("side", "parameters", *forms):
        table.add_column(column, justify="right")
    for side in dict.fromkeys(row["side"] for row in rows):
        found = {row["variant"]: row for row in rows if row["side"] == side}
        sizes = [f"{found[form]['bytes'] / 1e6:,.0f}" if form in found else "" for form in forms]
        table.add_row(str(side), f"{next(iter(found.values()))['parameters']:,}", *sizes)
    return table


def memory_table(report) -> Table:
    """Peak memory of a training step, by form."""
    table = Table(
        box=None, header_style="bold", title="memory of one training step above what was held before it"
    )
    for column in ("", "images a batch", "MB", f"of {OPEN}"):
        table.add_column(column, justify="left" if not column else "right")
    sizes = {row["variant"]: row["bytes"] for row in report["memory"]}
    for row in report["memory"]:
        if row["bytes"] is None:
            continue
        share = f"{row['bytes'] / sizes[OPEN]:.0%}" if sizes.get(OPEN) else ""
        table.add_row(row["variant"], str(row["batch"]), f"{row['bytes'] / 1e6:,.1f}", share)
    return table


def roofline_table(bounds) -> Table:
    """How close each form comes to the least time of its routing, from `roofline`."""
    title = (
        f"roofline of routing: {bounds['operations'] / 1e6:,.1f} million operations an image, "
        f"{bounds['operations_per_second'] / 1e9:,.0f} billion a second; as a graph {bounds['bytes'] / 1e6:,.1f} MB, "
        f"{bounds['bytes_per_second'] / 1e9:,.0f} GB a second"
    )
    table = Table(box=None, header_style="bold", title=title)
    for column in ("", "least ms an image", "ms of the network", "share"):
        table.add_column(column, justify="left" if not column else "right")
    for form, row in bounds["forms"].items():
        table.add_row(form, f"{1e3 * row['least']:.3f}", f"{1e3 * row['seconds']:.3f}", f"{row['share']:.0%}")
    return table
