"""The baseline of `capszoo bench` computes what our layers compute; the measurements are what they say."""

import dataclasses
import json
import socket
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support import fill

from capszoo import cli
from capszoo.benchmarking import (
    bundles,
    draw_scaling,
    drawing,
    measuring,
    memory,
    networks,
    report,
    routing_alone,
    tables,
    textbook,
)
from capszoo.exporting import servers
from capszoo.extras import MissingExtra
from capszoo.layers import ConvCapsules
from capszoo.models import ConvNet, DynamicCapsNet, MatrixCapsNet
from capszoo.routing import VariationalBayesRouting
from capszoo.routing.cpu import host_calls
from capszoo.zoo import recipes
from capszoo.zoo.integrity import IntegrityError
from capszoo.zoo.recipes import read_recipe

# Two iterations have one E-step, all there is.
MATRIX = MatrixCapsNet(channels=8, primary_types=2, conv1_types=3, conv2_types=4, num_iterations=2)
DYNAMIC = DynamicCapsNet(channels=8, primary_types=2, decoder=False)
LEAKY = dataclasses.replace(DYNAMIC, routing="leaky", class_bias=False)
NETS = {
    "em": (MATRIX, (22, 24, 2), ("fused", "graph")),
    # With a third iteration its damping has a previous mean that is not the first.
    "em, the authors' variant": (
        dataclasses.replace(MATRIX, variant="official", num_iterations=3),
        (22, 24, 2),
        ("fused", "graph"),
    ),
    "dynamic": (DYNAMIC, (20, 20, 1), ("graph",)),
    "leaky": (LEAKY, (20, 20, 1), ("graph",)),
}


def outputs_and_gradients(model, inputs, weights):
    """All outputs of a model, and the gradients of a fixed mixture of them."""
    rng = np.random.default_rng(1)

    @tf.function(autograph=False)
    def run():
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = sum(
                tf.reduce_sum(
                    outputs[name] * rng.normal(size=(len(inputs), *outputs[name].shape[1:])).astype("float32")
                )
                for name in sorted(outputs)
            )
        return outputs, tape.gradient(loss, weights)

    outputs, gradients = run()
    return {**outputs, **dict(zip([w.path for w in weights], gradients, strict=True))}


@pytest.mark.slow
@pytest.mark.parametrize("net", NETS)
def test_the_textbook_twin_has_our_outputs_and_gradients(net):
    architecture, image_shape, forms = NETS[net]
    # Such weights move children far from parents: what the authors' code adds to the sums of shares counts.
    model = fill(architecture.build(image_shape, 5), scale=0.2)
    inputs = np.random.default_rng(0).random((3, *image_shape)).astype("float32")
    theirs = outputs_and_gradients(textbook.twin(model), inputs, model.trainable_weights)
    for form in forms:
        with host_calls(form == "fused"):
            ours = outputs_and_gradients(model, inputs, model.trainable_weights)
        assert ours.keys() == theirs.keys()
        for name, expected in theirs.items():
            scale = np.abs(expected).max()
            assert scale > 0, name
            assert np.abs(ours[name] - expected).max() <= 3e-5 * scale, (form, name)


def test_a_form_that_open_code_lacks_is_refused_by_name():
    with pytest.raises(ValueError, match="Received: ConvCapsules with EMRouting"):
        textbook.twin(dataclasses.replace(MATRIX, activation="mixing").build((20, 20, 1), 5))
    with pytest.raises(ValueError, match="Received: ConvCapsules with VariationalBayesRouting"):
        textbook.textbook_layer(ConvCapsules(2, 3, 1, VariationalBayesRouting(2)))
    with pytest.raises(ValueError, match="routed is needed"):
        textbook.twin(ConvNet().build((32, 32, 2), 5))


# Measuring


def test_functions_have_their_turns_in_rounds_that_begin_with_another_one():
    calls = []
    functions = {name: lambda name=name: (calls.append(name), time.sleep(measuring.TURN)) for name in "abc"}
    rounds = measuring.interleave(functions, seconds=0)
    assert {name: len(pairs) for name, pairs in rounds.items()} == dict.fromkeys("abc", measuring.FEWEST)
    turns = "".join(calls)[2 * len(functions) :]
    assert turns == "abcbcacababcbca"


def test_a_fast_function_is_repeated_within_its_turn(monkeypatch):
    calls = []
    now = iter(range(10**6))
    # Each call takes a tenth of a turn, by a clock that is looked at before and after.
    clock = types.SimpleNamespace(
        perf_counter=lambda: len(calls) * measuring.TURN / 10 + next(now) * 1e-9,
        process_time=lambda: 0.0,
        sleep=lambda seconds: None,
    )
    monkeypatch.setattr(measuring, "time", clock)
    measuring.interleave({"fast": lambda: calls.append(0)}, seconds=0)
    # Two before all rounds.
    assert len(calls) == 2 + 10 * measuring.FEWEST


def test_ratios_compare_turns_of_the_same_round():
    # The machine was ten times slower in the second round; the slower function had luck in the third.
    rounds = {"ours": [(1.0, 1.0), (10.0, 2.0), (1.0, 3.0)], "theirs": [(4.0, 2.0), (40.0, 8.0), (1.0, 9.0)]}
    summary = measuring.summarise(rounds, images=8)
    assert summary["ours"]["images_per_second"] == 8
    assert summary["ours"]["spread"] == [0.8, 8]
    assert summary["ours"]["cpu_seconds"] == 0.25
    assert summary["ours"]["faster_than"] == {"theirs": 4}
    assert summary["ours"]["less_cpu_than"] == {"theirs": 3}
    assert summary["theirs"]["faster_than"] == {"ours": 0.25}


@pytest.mark.slow
@pytest.mark.skipif(not memory.RESET.exists(), reason="only Linux tells a process's high-water mark")
def test_the_memory_of_a_step_holds_at_least_the_votes_that_open_code_stores():
    problem = routing_alone.Problem("em", batch=8, types=8, grid=14, iterations=1)
    votes = 4 * 8 * 6**2 * (9 * 8) * 8 * 16
    used = memory.peak_memory({"variant": networks.OPEN, "problem": dataclasses.asdict(problem)})
    assert 2 * votes < used < 40 * votes


def test_on_an_accelerator_of_jax_its_own_allocator_is_asked(monkeypatch, capsys):
    used = [
        {"bytes_in_use": 300, "peak_bytes_in_use": 500},
        {"bytes_in_use": 310, "peak_bytes_in_use": 1_000},
    ]
    device = types.SimpleNamespace(memory_stats=lambda: used.pop(0))
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(local_devices=lambda: [device]))
    monkeypatch.setattr(memory, "accelerators", lambda: ["a GPU"])
    monkeypatch.setattr(memory.keras.backend, "backend", lambda: "jax")
    steps = []
    monkeypatch.setattr(memory, "_step_of", lambda _: (8, lambda size: lambda: steps.append(size)))
    memory._main({})
    assert capsys.readouterr().out == "700\n"
    assert steps == [1, 2, 8]


# The command


@pytest.fixture
def quick(monkeypatch):
    """Measurements without the processes that they start, and of one small problem."""
    monkeypatch.setattr(memory, "peak_memory", lambda request: 1_000_000)
    monkeypatch.setattr(report, "startup", lambda preset, **_: {"python": 0.1, "import capszoo": 0.2})
    monkeypatch.setattr(measuring, "FEWEST", 1)
    small = routing_alone.Problem("em", 1, 2, 5)
    monkeypatch.setattr(routing_alone, "MIDDLE", {"em": small})
    monkeypatch.setattr(routing_alone, "SWEEPS", {"em": {"iterations": (2,)}})


RECIPE = """
model: {name: dynamic, channels: 4, primary_types: 2, decoder: false, num_iterations: 1}
data: {name: mnist}
train: {epochs: 1, batch_size: 2}
"""


def bench(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["capszoo", "bench", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_bench_measures_every_form_of_a_recipe_and_names_no_machine(quick, monkeypatch, tmp_path, capsys):
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE)
    monkeypatch.setattr(socket, "gethostname", lambda: "a-host-of-tests")
    monkeypatch.setenv("HOME", "/home/of-tests")
    assert bench(monkeypatch, recipe, "--batch", 2, "--seconds", 0, "--out", tmp_path) == 0
    text = (tmp_path / "bench.json").read_text()
    result = json.loads(text)
    # So few classes are routed by the graph anyway.
    forms = {networks.OURS, networks.XLA, networks.OPEN}
    measured = {(row["work"], row["batch"], row["variant"]) for row in result["speed"]}
    assert measured == {(work, 2, form) for work in ("training", "inference") for form in forms}
    assert {row["variant"] for row in result["memory"]} == forms
    assert result["machine"]["cpus"] >= 1
    for secret in ("a-host-of-tests", str(tmp_path), str(Path.home()), str(Path.cwd())):
        assert secret not in text
    assert "open code" in capsys.readouterr().out


def test_the_roofline_is_of_the_largest_batch_in_whatever_order_they_are_given(quick, monkeypatch, tmp_path):
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE)
    monkeypatch.setattr(networks, "variants", lambda _: ([networks.OURS], None))
    monkeypatch.setattr(report, "roofline", lambda _, speeds: speeds)
    result = report.benchmark(recipe, sizes=(2, 1), seconds=0)
    (largest,) = (row for row in result["speed"] if (row["work"], row["batch"]) == ("inference", 2))
    assert result["roofline"] == {networks.OURS: largest["images_per_second"]}


def test_what_was_measured_is_kept_where_a_bundle_cannot_run(quick, monkeypatch, tmp_path):
    def missing(*_):
        raise MissingExtra('pip install "capszoo[export]"')

    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE)
    monkeypatch.setattr(networks, "variants", lambda _: ([networks.OURS], None))
    monkeypatch.setattr(report, "roofline", lambda _, speeds: speeds)
    monkeypatch.setattr(bundles, "require_bundle", lambda _: None)
    monkeypatch.setattr(report, "require_whole", lambda _: None)
    monkeypatch.setattr(bundles, "name_of", lambda _: "tiny")
    monkeypatch.setattr(bundles, "measure_bundle", missing)
    result = report.benchmark(recipe, sizes=(2,), seconds=0, bundle=tmp_path)
    assert len(result["speed"]) == 2
    assert result["notes"] == ['The bundle is left out: pip install "capszoo[export]"']


def test_a_damaged_bundle_is_refused_before_anything_is_measured(quick, monkeypatch, tmp_path):
    monkeypatch.setattr(networks, "variants", pytest.fail)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    file = {"sha256": "0" * 64, "bytes": 3}
    (tmp_path / "export.json").write_text(json.dumps({"name": "tiny", "files": {"saved_model.pb": file}}))
    with pytest.raises(IntegrityError, match=r"saved_model\.pb is missing"):
        report.benchmark(tmp_path / "tiny.yaml", bundle=tmp_path)


def test_of_a_former_name_the_weights_are_loaded_and_where_there_are_none_the_rest_is_kept(
    quick, monkeypatch, tmp_path
):
    asked = []

    def startup(preset=None):
        asked.append(preset)
        if preset:
            raise RuntimeError("pip install capszoo-weights")
        return {"python": 0.1}

    monkeypatch.setattr(recipes, "FORMER_NAMES", {"old_vae": "vae_mnist"})
    monkeypatch.setattr(servers, "PUBLISHED", tmp_path)
    monkeypatch.setattr(networks, "variants", lambda _: ([networks.OURS], None))
    monkeypatch.setattr(report, "roofline", lambda _, speeds: speeds)
    monkeypatch.setattr(report, "startup", startup)
    with pytest.warns(FutureWarning, match="is called 'vae_mnist' now"):
        result = report.benchmark("old_vae", sizes=(2,), seconds=0)
    assert asked == ["vae_mnist", None]
    assert (result["subject"], len(result["speed"]), result["startup"]) == ("vae_mnist", 2, {"python": 0.1})
    assert result["notes"] == ["The time that loading takes is left out: pip install capszoo-weights"]


def test_a_network_is_compared_in_every_form_that_it_has():
    em = read_recipe("matrix_em_smallnorb")
    assert networks.variants(em) == (["capszoo", "graph form", "XLA", "open code", "1 iteration"], None)
    names, reason = networks.variants(read_recipe("cnn_smallnorb"))
    assert names == ["capszoo"]
    assert "a model with capsules" in reason


@pytest.mark.parametrize(
    ("forms", "advice"),
    [
        ((networks.OURS, networks.OPEN), "trust the CPU column"),
        ((networks.OURS,), "measure again when it is idle"),
    ],
)
def test_what_a_busy_machine_leaves_to_trust_is_in_the_table(forms, advice, capsys):
    row = {"work": "inference", "batch": 1, "images_per_second": 1.0}
    ratios = {"faster_than": dict.fromkeys(forms, 1.0), "less_cpu_than": dict.fromkeys(forms, 1.0)}
    machine = {"processor": "one", "cpus": 2, "accelerators": [], "libraries": "none", "load_before": 9.0}
    speed = [{**row, **ratios, "variant": form} for form in forms]
    tables.show({"machine": machine, "subject": "net", "notes": [], "speed": speed, "memory": []})
    assert f"The machine was busy (load 9.0): {advice}" in capsys.readouterr().out


def test_whose_artefacts_were_measured_is_known(tmp_path):
    (tmp_path / "export.json").write_text(json.dumps({"name": "mine", "version": 3}))
    assert bundles.name_of(tmp_path) == "mine"


def test_where_there_is_no_baseline_the_reason_is_said_and_a_sum_has_no_single_iteration(monkeypatch):
    monkeypatch.setattr(networks, "textbook", lambda: None)
    names, reason = networks.variants(read_recipe("dynamic_mnist_sum"))
    assert names == [networks.OURS, networks.XLA]
    assert "TensorFlow" in reason


@pytest.mark.slow
def test_a_routing_alone_is_measured_in_every_form(quick, monkeypatch, tmp_path):
    assert bench(monkeypatch, "--routing-alone", "em", "--seconds", 0, "--out", tmp_path) == 0
    result = json.loads((tmp_path / "bench_em_routing.json").read_text())
    forms = (networks.OURS, networks.GRAPH, networks.XLA, networks.OPEN)
    measured = [(row["work"], row["iterations"], row["variant"]) for row in result["speed"]]
    assert measured == [(work, 2, form) for work in ("inference", "training") for form in forms]
    assert (tmp_path / "bench_em_routing.png").stat().st_size > 10_000


def test_scaling_is_drawn_over_batch_types_grid_and_iterations():
    rows = [
        {**dataclasses.asdict(problem), "axis": axis, "work": work, "variant": form, **speed}
        for axis, problem in routing_alone.sweep("em")
        for work in ("inference", "training")
        for form, speed in {
            "fast": {"images_per_second": 100.0, "spread": [50.0, 200.0]},
            "slow": {"images_per_second": 10.0, "spread": [5.0, 20.0]},
        }.items()
    ]
    machine = {"processor": "abacus", "cpus": 2}
    figure = draw_scaling({"subject": "em routing alone", "machine": machine, "speed": rows})
    assert [panel.get_xlabel() for panel in figure.axes[4:]] == list(drawing.AXES.values())
    for panel in figure.axes:
        assert [line.get_label() for line in panel.lines] == ["fast", "slow"]
        assert [set(line.get_ydata()) for line in panel.lines] == [{10.0}, {100.0}]
    assert list(figure.axes[3].lines[0].get_xdata()) == list(routing_alone.SWEEPS["em"]["iterations"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a recipe, --routing-alone or --record is needed"),
        (("--routing-alone", "majority"), "must be one of em, dynamic"),
        (("--routing-alone", "em", "--batch", 64), "--batch needs a recipe"),
        (("matrix_em_smallnorb", "--side", 32, "--batch", 8, "--batch", 16), "--side takes one --batch"),
        (
            ("matrix_em_smallnorb", "--bundle", "none/such"),
            "one version of a bundle is needed. Received: none",
        ),
        (("matrix_em_smallnorb", "--routing-alone", "majority"), "must be one of em, dynamic"),
        (("matrix_em_smallnorb", "--batch", 0), "at least 1. Received: [0]"),
        (("matrix_em_smallnorb", "--seconds", "nan"), "seconds must be a number from 0 on. Received: nan"),
        (("matrix_em_smallnorb", "--out", "setup.file"), "File exists: 'setup.file'"),
        (("matrix_em_smallnorb", "--side", 0), "side must be at least 1. Received: 0"),
        (("matrix_em_smallnorb", "--side", 32, "--batch", 0), "batch must be at least 1. Received: 0"),
        (("matrix_em_smallnorb", "--side", 32, "--classes", 0), "classes must be at least 1. Received: 0"),
        (("matrix_em_smallnorb", "--side", 32, "--seconds", 9), "--seconds is not for --side"),
        (("matrix_em_smallnorb", "--classes", 0), "--classes needs --side"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(arguments, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.file").touch()
    assert bench(monkeypatch, *arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
