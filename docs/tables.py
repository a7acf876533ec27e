"""Writes the tables of README.md and of the site from the cards, and from the networks themselves.

A table stands between two comments, the first of which says what makes it:

    <!-- table: measured dynamic_mnist -->
    <!-- end of table -->

`make tables` writes all of them. Nobody types a number that a card knows.
"""

import argparse
import json
import math
import re
from pathlib import Path

import capszoo

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- table: (?P<words>.*?) -->\n(?P<text>.*?)<!-- end of table -->", re.DOTALL)
NO_CARD = "no weights are published"


def pages():
    """The files that have tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def written(text, makers=None):
    """`text` with every table between its comments made anew; only those of `makers` where they are given."""

    def table(match):
        name, *presets = match["words"].split()
        if makers is not None and name not in makers:
            return match[0]
        return f"<!-- table: {match['words']} -->\n\n{MAKERS[name](*presets)}\n\n<!-- end of table -->"

    return BLOCK.sub(table, text)


def markdown(header, rows):
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def zoo():
    """Presets with weights: what each is of, and the first number of its card beside its paper's."""
    rows = []
    for name in capszoo.list_models(pretrained=True):
        card = capszoo.get_preset(name).card
        first = card.metrics[0]
        measured = f"{first.metric} {_value(first)}"
        rows.append([f"`{name}`", card.paper, card.routing, card.trained_on, measured, _paper(first, card)])
    return markdown(["preset", "network of", "routing", "trained on", "measured", "reported"], rows)


def measured(*presets):
    """Every number of these presets' cards, or of all cards: interval, the paper's value, the command."""
    rows = []
    for name in presets or capszoo.list_models(pretrained=True):
        card = capszoo.get_preset(name).card
        if card is None:
            rows.append([f"`{name}`", "", NO_CARD, "", "", "", f"`capszoo train {name}`"])
        for m in card.metrics if card else ():
            low, high = map(m.text, m.interval)
            rows.append(
                [
                    f"`{name}`",
                    m.metric,
                    _value(m),
                    f"{low} to {high}",
                    f"{m.data} {m.split}, n = {m.n:,}",
                    _paper(m, card),
                    f"`{m.command}`",
                ]
            )
    header = ["preset", "metric", "measured", "95 % interval", "on", "paper", "command"]
    return markdown(header, rows)


def deviations(*presets):
    """How these presets differ from their papers, as a list."""
    lines = []
    for name in presets:
        card = capszoo.get_preset(name).card
        lines += [f"- `{name}`: {text}" for text in (card.deviations if card else ())]
    return "\n".join(lines)


def network(name):
    """The layers of a preset's network: what comes out of each, and how many numbers it learns."""
    import keras

    from capszoo.models.network import trainable_parameters

    model = capszoo.create(name)
    rows = [
        [
            f"`{layer.name}`",
            type(layer).__name__,
            ", ".join(map(_shape, keras.tree.flatten(layer.output))),
            f"{sum(math.prod(weight.shape) for weight in layer.trainable_weights):,}",
        ]
        for layer in model.layers
    ]
    rows.append(["", "", "all", f"{trainable_parameters(model):,}"])
    return markdown(["layer", "kind", "output", "parameters"], rows)


def learned_routing():
    """Table 3 of Faria 2019."""
    rows = []
    for routing, name in {
        "similarity learning": "kernel",
        "connectionist": "lstm",
        "EM, two iterations": "consensus_em",
    }.items():
        row = [f"{routing} (`{name}`)"]
        for data in ("mnist", "smallnorb"):
            metric = capszoo.get_preset(f"{name}_{data}").card.metrics[0]
            low, high = map(metric.text, metric.interval)
            paper = "" if metric.paper is None else metric.text(metric.paper)
            row += [f"{metric.text(metric.value)} ({low} to {high})", paper]
        rows.append(row)
    header = ["routing, in one network", "MNIST", "paper", "synthnorb", "paper, on smallNORB"]
    return markdown(header, rows)


def linear_probes():
    """Table 1 of Smith et al. 2020, without its affNIST: accuracies in per cent, of both readings."""
    turned = [f"_rotated_{angle}" for angle in (45, 90, 135, 180)]
    rows = []
    for what, name, prefix in (
        ("presences", "probabilistic_mnist", "presence_"),
        ("presences and poses", "probabilistic_mnist", ""),
        ("code", "vae_mnist", ""),
    ):
        metrics = _by_protocol(name)
        upright = metrics[f"{prefix}probe"]
        for reading, digits in (("", "upright"), ("_refitted", "turned alike")):
            found = [upright, *(metrics[f"{prefix}probe{angle}{reading}"] for angle in turned)]
            rows.append([f"`{name}`, {what}", digits, *(f"{100 * (1 - m.value):.1f}" for m in found)])
        rows.append(["the paper's", "", *(f"{100 * (1 - m.paper):.0f}" for m in found)])
    return markdown(["network", "classifier fitted to digits", "upright", "45", "90", "135", "180"], rows)


def support_vectors():
    """Table 1 of Rawlinson et al. 2018: accuracies in per cent; the paper's affine digits are affNIST's."""
    rows = []
    for name in ("sparse_mnist_expanded_small", "unmasked_mnist_expanded_small"):
        metrics, papers = _by_protocol(name), capszoo.get_preset(name).mapping["card"]["protocols"]
        ours = [metrics[f"svm{data}"].value for data in ("", "_affnist_synth", "_transfer_affnist_synth")]
        theirs = [papers[f"svm{data}"] for data in ("", "_affnist", "_transfer_affnist")]
        rows.append([f"`{name}`", *(f"{100 * (1 - error):.2f}" for error in ours)])
        rows.append(["the paper's", *(f"{100 * (1 - error):.2f}" for error in theirs)])
    return markdown(["network", "MNIST", "affine digits", "affine digits, fitted to MNIST"], rows)


def attacks(report):
    """Figure 3 of Hinton et al. 2018: accuracies after untargeted attacks, of a report in this folder."""
    found = json.loads((ROOT / "docs" / report).read_text(encoding="utf-8"))
    curves = [curve for curve in found["curves"] if not curve["targeted"]]
    rows = [
        [
            f"`{curve['model']}`",
            curve["attack"].upper(),
            *(f"{point['value']:.1%}" for point in curve["points"]),
        ]
        for curve in curves
    ]
    epsilons = [f"{point['epsilon']:g}" for point in curves[0]["points"]]
    table = markdown(["accuracy after an attack", "epsilon", *epsilons], rows)
    return f"{table}\n\n{found['n']} images of {found['data']}'s {found['split']} split: `{found['command']}`"


MAKERS = {
    maker.__name__: maker
    for maker in (
        zoo,
        measured,
        deviations,
        network,
        learned_routing,
        linear_probes,
        support_vectors,
        attacks,
    )
}
# These need a backend to build networks; the others read cards alone.
BUILDING = {"network"}


def _value(metric):
    return f"{metric.text(metric.value)} {metric.unit}".rstrip()


def _paper(metric, card):
    if metric.paper is None:
        return ""
    # A number of a twin of the paper's data set is not the paper's.
    return metric.text(metric.paper) + ("" if card.trained_on == card.dataset else f", on {card.dataset}")


def _by_protocol(name):
    return {metric.protocol: metric for metric in capszoo.get_preset(name).card.metrics}


def _shape(tensor):
    return f"[{', '.join(['B', *map(str, tensor.shape[1:])])}]"


def main():
    """Writes the tables into their files, and says which have changed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cards-only", action="store_true", help="leave out tables that need a backend")
    makers = set(MAKERS) - BUILDING if parser.parse_args().cards_only else None
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = written(before, makers)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"written: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
