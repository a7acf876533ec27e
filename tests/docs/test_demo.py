"""The demo page, used in a browser: what it shows is what the Keras model says, and nothing leaves the machine."""

import functools
import http.server
import json
import shutil
import subprocess
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import capszoo
from capszoo import visualize
from capszoo.data import samples
from capszoo.data.samples import digits
from capszoo.exporting.demo import DemoFunctions
from capszoo.exporting.verification import FLOAT16_TOLERANCE
from capszoo.visualize import coefficient_maps

DRIVER = Path(__file__).with_name("browser")
GREY = 1 + 255 * FLOAT16_TOLERANCE  # what rounding to 256 levels and float16 weights change

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """Playwright, as the lock file has it."""
    folder = tmp_path_factory.mktemp("modules")
    for file in ("package.json", "package-lock.json"):
        shutil.copy(DRIVER / file, folder)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return folder / "node_modules"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site):
    """Where the site is served."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def said(address, browser, modules, tmp_path_factory):
    """What the page has shown after each thing that was done to it, see `browser/visit.mjs`."""
    screenshots = tmp_path_factory.mktemp("screenshots")
    command = ["node", DRIVER / "visit.mjs", modules, browser, address, screenshots]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def model():
    return capszoo.load("dynamic_mnist")


@pytest.fixture(scope="module")
def pictures(said):
    """What was shown of the sample digits, in their order; and the digits and their labels."""
    return [said["pictures"][name] for name in sorted(said["pictures"])], *digits()


def rows(states, name):
    """One entry of several states as an array `[states, ...]`."""
    return np.array([state[name] for state in states], "float32")


def decoded(model, state, shown, offsets):
    """Grey levels `[784]` of what the Keras decoder makes of one capsule of the image in `state`."""
    image = np.reshape(state["input"], (1, 28, 28, 1)) / np.float32(255)
    selection = np.eye(10, dtype="float32")[None, [shown]]
    poses = np.asarray(model(image)["poses"]) + selection[0][..., None] * offsets
    return 255 * np.asarray(DemoFunctions(model).decoder(poses, selection)["reconstruction"]).ravel()


def test_every_sample_digit_is_recognised(pictures):
    states, _, labels = pictures
    assert len(states) == len(labels) == 20
    assert [int(state["capsule"]) for state in states] == labels.tolist()
    for state, label in zip(states, labels, strict=True):
        assert f"is that of {label}: length 0." in state["status"]


def test_the_network_gets_the_pixels_of_a_chosen_digit(pictures):
    states, images, _ = pictures
    np.testing.assert_array_equal(rows(states, "input"), np.round(255 * images.reshape(20, -1)))


def test_lengths_and_reconstructions_are_the_keras_models(pictures, model):
    states, images, _ = pictures
    expected = model(images)
    np.testing.assert_allclose(rows(states, "lengths"), expected["scores"], atol=FLOAT16_TOLERANCE)
    levels = 255 * np.asarray(expected["reconstruction"]).reshape(20, -1)
    np.testing.assert_allclose(rows(states, "reconstruction"), levels, atol=GREY)


def test_the_map_is_lighter_where_more_is_routed_to_the_capsule(pictures, model):
    states, images, labels = pictures
    maps = coefficient_maps(model, images)
    for state, image, values in zip(states, images, maps[np.arange(20), ..., labels], strict=True):
        # Ten pixels of the canvas are one of the image, which shines through by a quarter.
        canvas, at = np.reshape(state["map"], (280, 280)), np.arange(8, 20, 2)
        colours = canvas[np.ix_(10 * at + 5, 10 * at + 5)] - 0.25 * 255 * image[np.ix_(at, at, [0])][..., 0]
        rising = colours.ravel()[np.argsort(values, axis=None)]
        assert np.diff(rising).min() > -3
        assert np.ptp(rising) > 10


def test_the_children_in_the_table_send_most(pictures, model):
    states, images, labels = pictures
    functions = DemoFunctions(model)
    outputs = functions.network(images)
    coefficients = np.asarray(outputs["coefficients"])[np.arange(20), :, labels].reshape(20, *functions.grid)
    activations = np.asarray(outputs["activations"]).reshape(20, *functions.grid)
    for state, activation, coefficient in zip(states, activations, coefficients, strict=True):
        table = np.array(state["children"])
        places = tuple(table[:, :3].astype(int).T - 1)
        np.testing.assert_allclose(table[:, 3], activation[places], atol=0.006)
        np.testing.assert_allclose(table[:, 4], coefficient[places], atol=0.006)
        most = np.sort(activation * coefficient, axis=None)[: -len(table) - 1 : -1]
        np.testing.assert_allclose((activation * coefficient)[places], most, atol=FLOAT16_TOLERANCE)


def test_a_stroke_drawn_with_the_mouse_is_a_one_prepared_as_mnists_are(said):
    assert "is that of 1: length 0." in said["drawn"]["status"]
    image = np.reshape(said["drawn"]["input"], (28, 28)) / 255
    height, width = (np.ptp(np.flatnonzero(image.max(axis=axis))) + 1 for axis in (1, 0))
    assert height in (20, 21, 22), "the longer side is 20 pixels, wherever they begin"
    assert width < 8
    middles = np.arange(28) + 0.5
    for axis in (0, 1):
        assert image.sum(axis=axis) @ middles / image.sum() == pytest.approx(14, abs=0.05)


def test_a_stroke_can_be_drawn_with_the_keyboard(said):
    assert said["cleared"]
    assert "is that of 1: length 0." in said["typed"]["status"]


def test_a_slider_changes_the_reconstruction_and_nothing_else(said, model):
    drawn, moved = said["drawn"], said["moved"]
    offsets = 0.25 * np.eye(16, dtype="float32")[4]
    np.testing.assert_allclose(drawn["reconstruction"], decoded(model, drawn, 1, 0 * offsets), atol=2 * GREY)
    np.testing.assert_allclose(moved["reconstruction"], decoded(model, drawn, 1, offsets), atol=2 * GREY)
    assert np.abs(np.subtract(moved["reconstruction"], drawn["reconstruction"])).max() > 20
    assert {**moved, "reconstruction": 0} == {**drawn, "reconstruction": 0}
    assert said["reset"] == drawn


def test_another_capsule_can_be_chosen(said, model):
    drawn, chosen = said["drawn"], said["chosen"]
    assert (drawn["capsule"], chosen["capsule"]) == ("1", "7")
    assert chosen["lengths"] == drawn["lengths"]
    np.testing.assert_allclose(
        chosen["reconstruction"], decoded(model, drawn, 7, np.zeros(16, "float32")), atol=2 * GREY
    )
    assert chosen["map"] != drawn["map"]


def test_no_request_leaves_the_machine_and_the_console_has_no_error(said, address):
    assert said["errors"] == []
    assert [url for url in said["requests"] if not url.startswith(f"{address}/")] == []
    # That requests are seen at all.
    assert any(url.endswith(".wasm") for url in said["requests"])
    assert any(url.endswith("decoder.float16.tflite") for url in said["requests"])


def test_the_page_says_how_much_the_first_digit_loads(said, site):
    built = site / "demo/built"
    loaded = [*built.glob("digits/*.tflite"), *built.glob("litert/*.wasm")]
    size = sum(path.stat().st_size for path in loaded)
    assert said["before"] == f"Draw a digit, or choose one. The first one loads {size / 1e6:.0f} MB."


def test_a_browser_that_cannot_run_it_is_told_so(said):
    assert said["without_webassembly"] == "The demo cannot run here: this browser has no WebAssembly."


@pytest.fixture(scope="module")
def toys(said):
    """What was shown of the sample toys, in their order; what the Keras model's functions say; and the labels."""
    images, labels = samples.toys()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        functions = DemoFunctions(capszoo.load("matrix_em_smallnorb"))
    outputs = {name: np.asarray(values) for name, values in functions.network(images).items()}
    return [said["toys"][name] for name in sorted(said["toys"])], outputs, functions, labels


def test_chosen_toys_are_seen_as_the_keras_model_sees_them(toys):
    states, outputs, functions, labels = toys
    assert len(states) == len(labels) == 5
    names = [functions.model.class_names[index] for index in outputs["scores"].argmax(axis=-1)]
    assert [state["capsule"] for state in states] == names
    np.testing.assert_allclose(rows(states, "lengths"), outputs["scores"], atol=1e-4)
    for state, seen in zip(states, outputs["seen"], strict=True):
        least, largest = min(0, seen.min()), max(1, seen.max())
        expected = 255 * (seen[..., 0] - least) / (largest - least)
        np.testing.assert_allclose(np.reshape(state["input"], expected.shape), expected, atol=1)
        assert "activation 0." in state["status"] or "activation 1." in state["status"]


def test_the_children_of_a_toys_capsule_send_most(toys):
    states, outputs, functions, _ = toys
    for number, state in enumerate(states):
        shown = outputs["scores"][number].argmax()
        sent = (outputs["activations"][number] * outputs["coefficients"][number, :, shown]).reshape(
            functions.grid
        )
        table = np.array(state["children"])
        places = tuple(table[:, :3].astype(int).T - 1)
        np.testing.assert_allclose(sent[places], np.sort(sent, axis=None)[: -len(table) - 1 : -1], atol=1e-4)
        # As of digits; a pixel of what is seen is 8.75 of the canvas.
        centres = np.array(visualize.child_centres(functions.model)[0], int)
        canvas, at = np.reshape(state["map"], (280, 280)), (8.75 * (centres + 0.5)).astype(int)
        grey = np.reshape(state["input"], (32, 32))[np.ix_(centres, centres)]
        colours = canvas[np.ix_(at, at)] - 0.25 * grey
        rising = colours.ravel()[np.argsort(sent.sum(axis=-1), axis=None)]
        assert np.diff(rising).min() > -3
        assert np.ptp(rising) > 10


def test_toys_are_chosen_and_not_drawn(toys, said):
    assert said["pens"] == 0
    for state in toys[0]:
        assert state["reconstruction"] is None
