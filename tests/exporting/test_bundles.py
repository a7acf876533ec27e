"""Bundles: what is exported says what the model says, to programs without capszoo."""

import copy
import dataclasses
import json
import os
import runpy
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from exporting.requests import client, encoded, predict_bytes, scores_of
from onnxruntime import InferenceSession
from PIL import Image
from support import dtype_policy, full_disk
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

import capszoo
import capszoo.exporting.bundle
from capszoo.benchmarking import compare_bundle
from capszoo.cli.tables import artefact_table
from capszoo.data.images import read_image
from capszoo.data.preprocessing import Preprocessing
from capszoo.exporting import export, identity, isolation, record_exports, recording, servers, verify
from capszoo.exporting.artefacts import runners
from capszoo.exporting.chunks import CHUNK, in_chunks
from capszoo.exporting.examples import fitting
from capszoo.exporting.isolation import run_alone
from capszoo.exporting.saved_model import BATCH_SIZES, Signatures, stage_names
from capszoo.exporting.verification import EXAMPLES, ROUNDING, require_agreement, require_whole
from capszoo.extras import MissingExtra
from capszoo.models import DynamicCapsNet, MatrixCapsNet, SparseCapsNet, VariationalAutoencoder
from capszoo.routing import by_image
from capszoo.training.weight_files import save_weights
from capszoo.zoo import locating
from capszoo.zoo.card import ExportedFormat, read_card
from capszoo.zoo.integrity import IntegrityError, sha256_of

# What is served is rewritten too.
pytestmark = pytest.mark.rewritten

WEIGHTS = locating.weights_folder()

NET = DynamicCapsNet(channels=16, primary_types=4)
CLASSES = [f"class {i}" for i in range(10)]
IMAGES = np.random.default_rng(1).random((5, 28, 28, 1), dtype="float32")


@pytest.fixture(scope="module")
def published(tiny_model, tmp_path_factory):
    """The folder and the report of one exported model."""
    directory = tmp_path_factory.mktemp("models")
    options = {"stages": NET.stages, "class_names": CLASSES, "int8": True}
    report = export(tiny_model, directory, name="tiny", version=3, **options)
    return directory / "tiny" / "3", report


@pytest.fixture(scope="module")
def bundle(published):
    return published[0]


@pytest.fixture(scope="module")
def signatures(bundle):
    return tf.saved_model.load(str(bundle)).signatures


@pytest.fixture
def altered(bundle, tmp_path):
    """A copy of the bundle, to be damaged."""
    return Path(shutil.copytree(bundle, tmp_path / "3"))


# What is written


def test_a_server_that_polls_the_folder_sees_versions_and_nothing_else(bundle):
    assert [path.name for path in bundle.parent.iterdir()] == ["3"]
    assert [path.name for path in bundle.parent.parent.iterdir()] == ["tiny"]


def test_the_report_lists_every_file_with_its_hash_and_size(published):
    bundle, report = published
    assert json.loads((bundle / "export.json").read_text()) == report
    files = {p.relative_to(bundle).as_posix() for p in bundle.rglob("*") if p.is_file()} - {"export.json"}
    assert files == set(report["files"])
    assert all(sha256_of(bundle / name) == file["sha256"] for name, file in report["files"].items())
    litert = {f"litert/tiny.{numbers}.tflite" for numbers in ("float32", "float16", "int8")}
    assert {"saved_model.pb", "onnx/tiny.onnx", *litert} <= files
    assert set(report["libraries"]) == {"keras", "tensorflow", "ai-edge-litert", "onnxruntime"}


@pytest.mark.usefixtures("accelerator")
def test_a_graph_is_traced_for_processors_whatever_this_machine_has(tmp_path, monkeypatch):
    monkeypatch.setattr(by_image, "AT_ONCE", 0)
    architecture = MatrixCapsNet(channels=4, primary_types=2, conv1_types=2, conv2_types=2)
    signatures = Signatures(
        architecture.build((20, 20, 1), 3), lambda images: images, (20, 20, 1), ("class_capsules",)
    )
    signatures.write_unchecked(tmp_path)
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    functions = saved.meta_graphs[0].graph_def.library.function
    loops = [node for function in functions for node in function.node_def if "While" in node.op]
    assert len(loops) == 3, "a layer goes through its images"


def test_routing_image_by_image_wants_one_thread_for_an_operation(published):
    assert published[1]["environment"] == {}
    by_image = capszoo.load("matrix_em_mnist", weights=None)
    assert capszoo.exporting.bundle._environment(by_image) == {"TF_NUM_INTRAOP_THREADS": "1"}
    image = keras.Input((28, 28, 1))
    inside = keras.Model(image, by_image(image))
    assert capszoo.exporting.bundle._environment(inside) == {"TF_NUM_INTRAOP_THREADS": "1"}
    for name in ("inverted_attention_mnist", "heinsen_smallnorb"):  # whose layers route a whole batch
        assert capszoo.exporting.bundle._environment(capszoo.create(name)) == {}


@pytest.mark.parametrize(
    ("dataset", "shape", "wanted"),
    [
        ("mnist", (28, 28, 1), ("samples", 4)),
        ("smallnorb", (96, 96, 2), ("samples", 5)),
        ("mnist", (40, 40, 1), ("samples", 4)),
        ("mnist", (20, 20, 1), ("drawn", 4)),
        ("smallnorb", (100, 100, 2), ("drawn", 4)),
        ("fashion_mnist", (28, 28, 1), ("drawn", 4)),
        (None, (28, 28, 1), ("drawn", 4)),
    ],
)
def test_examples_are_real_pictures_where_some_are_like_the_presets(dataset, shape, wanted):
    images, source = fitting(dataset, shape)
    assert (source, len(images)) == wanted
    assert images.shape[1:] == shape
    assert np.ptp(images) > 0.5


def test_every_artefact_says_what_the_keras_model_says(published):
    deviations = dict(published[1]["deviations"])
    assert set(deviations) == {
        "serving_default", "predict_bytes", "features", "litert-float32", "litert-float16", "litert-int8", "onnx"
    }  # fmt: skip
    assert 1e-4 < max(deviations.pop("litert-int8").values()) < 0.02
    half = deviations.pop("litert-float16")
    assert 1e-6 < max(half.values()) < 5e-3, "float16 weights are rounded, and little is lost"
    assert max(value for outputs in deviations.values() for value in outputs.values()) < 1e-5


def test_the_decoder_stays_behind(bundle, tiny_model):
    served = [s for name, s in tf.train.list_variables(str(bundle / "variables" / "variables")) if s]
    needed = keras.Model(tiny_model.input, tiny_model.output["poses"]).count_params()
    assert sum(map(np.prod, served)) == needed < tiny_model.count_params()
    assert (bundle / "litert" / "tiny.float32.tflite").stat().st_size < 4 * needed + 50_000
    assert (bundle / "litert" / "tiny.float16.tflite").stat().st_size < 2 * needed + 50_000
    assert (bundle / "onnx" / "tiny.onnx").stat().st_size < 4 * needed + 50_000


def test_labels_are_one_class_name_a_line(bundle):
    assert (bundle / "assets.extra" / "labels.txt").read_text().splitlines() == CLASSES


def test_no_file_tells_where_it_was_made(bundle):
    places = [str(Path.cwd()).encode(), str(bundle.parent.parent).encode()]
    if Path.home() != Path("/"):
        places.append(str(Path.home()).encode() + b"/")
    for path in filter(Path.is_file, bundle.rglob("*")):
        assert not [place for place in places if place in path.read_bytes()], path


# What is served


def test_signatures_take_any_batch_and_name_what_they_take_and_give(signatures):
    assert set(signatures) == {"serving_default", "predict_bytes", "features"}
    for name, inputs in [
        ("serving_default", {"images": [None, 28, 28, 1]}),
        ("predict_bytes", {"image_bytes": [None]}),
    ]:
        _, taken = signatures[name].structured_input_signature
        assert {key: spec.shape.as_list() for key, spec in taken.items()} == inputs
        given = signatures[name].structured_outputs
        assert {key: spec.shape.as_list() for key, spec in given.items()} == {
            "scores": [None, 10],
            "poses": [None, 10, 16],
        }


def test_served_scores_and_poses_are_the_models(signatures, tiny_model):
    served = signatures["serving_default"](images=tf.constant(IMAGES))
    expected = tiny_model(IMAGES, training=False)
    for key in ("scores", "poses"):
        np.testing.assert_allclose(served[key], expected[key], atol=1e-5)


def test_features_are_the_outputs_of_every_stage(signatures, tiny_model):
    served = signatures["features"](images=tf.constant(IMAGES))
    assert set(served) == set(NET.stages)
    for stage in NET.stages:
        expected = keras.Model(tiny_model.input, tiny_model.get_layer(stage).output)(IMAGES)
        np.testing.assert_allclose(served[stage], expected, atol=1e-5)


def test_features_of_a_network_inside_of_a_model(signatures, tiny_model):
    """A network that its model calls twice, of which the second time is the outputs'."""
    images = keras.Input((28, 28, 1))
    tiny_model(images)
    outputs = tiny_model(keras.layers.Rescaling(1.0, name="same")(images))
    outer = keras.Model(images, {name: outputs[name] for name in ("scores", "poses")})
    stages = [f"{tiny_model.name}/{stage}" for stage in NET.stages]
    assert {*stages, "same"} <= set(stage_names(outer))
    features = Signatures(outer, Preprocessing(), (28, 28, 1), [*stages, "same"]).features(IMAGES)
    np.testing.assert_array_equal(features.pop("same"), IMAGES)
    wanted = signatures["features"](images=tf.constant(IMAGES))
    assert set(features) == {f"{tiny_model.name}_{name}" for name in wanted}
    for name, values in wanted.items():
        np.testing.assert_allclose(features[f"{tiny_model.name}_{name}"], values, atol=1e-5)


def test_a_row_does_not_depend_on_the_other_rows(signatures):
    alone = np.concatenate([scores_of(signatures, image[None]) for image in IMAGES])
    padded = np.concatenate([IMAGES, np.ones((27, 28, 28, 1), "float32")])
    np.testing.assert_allclose(scores_of(signatures, IMAGES), alone, atol=1e-6)
    np.testing.assert_allclose(scores_of(signatures, padded)[:5], alone, atol=1e-6)
    np.testing.assert_allclose(scores_of(signatures, IMAGES[::-1])[::-1], alone, atol=1e-6)


@pytest.mark.parametrize("count", [CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_a_large_batch_is_answered_like_its_parts(signatures, tiny_model, count):
    images = np.random.default_rng(2).random((count, 28, 28, 1), dtype="float32")
    expected = tiny_model.predict_on_batch(images)
    served = signatures["serving_default"](images=tf.constant(images))
    for key in ("scores", "poses"):
        np.testing.assert_allclose(served[key], expected[key], atol=1e-6)
    features = signatures["features"](images=tf.constant(images))
    for stage in NET.stages:
        assert features[stage].shape[0] == count


def test_a_model_of_half_precision_is_refused_before_anything_is_written(tmp_path):
    with dtype_policy("mixed_bfloat16"):
        model = DynamicCapsNet(channels=4, primary_types=2, decoder=False).build((28, 28, 1), 2)
    with pytest.raises(ValueError, match="dtype policy 'float32' is needed"):
        export(model, tmp_path / "models", name="half")
    assert not (tmp_path / "models").exists()


def test_a_library_that_only_the_conversion_needs_is_missed_before_anything_is_written(
    tiny_model, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(MissingExtra, match=r"tf2onnx is not installed.*capszoo\[export\]"):
        export(tiny_model, tmp_path / "models", name="tiny")
    assert not (tmp_path / "models").exists()


def test_the_quantiser_is_missed_only_where_int8_weights_are_asked_for(tiny_model, tmp_path, monkeypatch):
    # Colab's environment has the converters, and no room for it.
    monkeypatch.setitem(sys.modules, "ai_edge_quantizer", None)
    with pytest.raises(MissingExtra, match=r"ai_edge_quantizer is not installed"):
        export(tiny_model, tmp_path / "models", name="tiny", int8=True)
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(MissingExtra, match=r"tf2onnx is not installed"):
        export(tiny_model, tmp_path / "models", name="tiny")
    assert not (tmp_path / "models").exists()


def test_no_more_images_than_a_part_are_computed_at_once():
    sizes = []

    def function(images):
        if tf.executing_eagerly():
            sizes.append(len(images))
        return {"sums": tf.reduce_sum(images, (1, 2, 3))}

    images = tf.ones((2 * CHUNK + 5, 2, 2, 1))
    np.testing.assert_array_equal(
        in_chunks(function, images, {"sums": (None,)})["sums"], np.full(2 * CHUNK + 5, 4.0)
    )
    assert sizes == [CHUNK, CHUNK, 5]


GREY = (IMAGES[0, ..., 0] * 255).astype("uint8")


@pytest.mark.parametrize(
    "picture",
    [
        encoded(GREY),
        encoded(np.stack([GREY] * 3, axis=-1)),
        encoded(GREY.astype("uint16") * 257),
        encoded(np.dstack([GREY] * 3 + [np.full_like(GREY, 255)])),
        encoded(np.dstack([GREY, np.full_like(GREY, 255)])),
    ],
    ids=["grey", "colour", "16 bits", "opaque colour", "opaque grey"],
)
def test_an_encoded_picture_scores_like_its_pixels(signatures, picture):
    np.testing.assert_allclose(
        predict_bytes(signatures, picture), scores_of(signatures, GREY[None, :, :, None] / 255.0), atol=1e-6
    )


def test_colours_become_grey_by_their_luma_and_transparency_shows_black(signatures):
    green = encoded(np.full((28, 28, 3), [0, 255, 0], "uint8"))
    np.testing.assert_allclose(
        predict_bytes(signatures, green), scores_of(signatures, np.full((1, 28, 28, 1), 0.587)), atol=1e-5
    )
    clear = encoded(np.full((28, 28, 4), [255, 255, 255, 0], "uint8"))
    np.testing.assert_allclose(
        predict_bytes(signatures, clear), scores_of(signatures, np.zeros((1, 28, 28, 1))), atol=1e-6
    )


def test_pictures_of_any_size_and_format_share_a_batch(signatures):
    large = GREY.repeat(4, axis=0).repeat(4, axis=1)
    flat = np.full((28, 28), 100, "uint8")
    together = predict_bytes(signatures, encoded(large), encoded(flat, "JPEG"), encoded(flat))
    np.testing.assert_allclose(together[1], together[2], atol=1e-6)
    smaller = read_image(Image.fromarray(large), (28, 28, 1), resize=True)
    np.testing.assert_allclose(together[0], scores_of(signatures, smaller[None])[0], atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 1e-3, (
        "the pictures must differ for this to mean anything"
    )


@pytest.mark.parametrize("picture", [b"", b"not a picture", encoded(GREY)[:200]])
def test_bytes_that_are_no_picture_are_refused(signatures, picture):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"a PNG or JPEG picture is expected|Invalid PNG"
    ):
        predict_bytes(signatures, encoded(GREY), picture)


def test_a_picture_of_more_pixels_than_the_limit_is_refused(signatures):
    with pytest.raises(tf.errors.InvalidArgumentError, match="4100 4100"):
        predict_bytes(signatures, encoded(GREY), encoded(np.zeros((4100, 4100), "uint8")))


@pytest.mark.parametrize("shape", [(2, 56, 28, 1), (2, 28, 28, 3), (28, 28, 1)])
@pytest.mark.parametrize("signature", ["serving_default", "features"])
def test_images_of_another_shape_are_refused_by_the_graph_itself(signatures, signature, shape):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"not compatible with expected shape \[\?,28,28,1\]"
    ):
        signatures[signature](images=tf.zeros(shape))


@pytest.mark.parametrize("value", [255.0, -1.0, np.nan, np.inf])
def test_values_that_are_no_grey_levels_are_refused(signatures, value):
    images = IMAGES.copy()
    images[3, 14, 14, 0] = value
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"images must be numbers in \[0, 1\]"):
        scores_of(signatures, images)


def test_an_empty_batch_is_refused(signatures):
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least one image"):
        scores_of(signatures, IMAGES[:0])


def test_every_warm_up_request_can_be_answered(bundle, signatures):
    met = set()
    for record in tf.data.TFRecordDataset(str(bundle / "assets.extra" / "tf_serving_warmup_requests")):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        assert request.model_spec.name == "tiny"
        inputs = {key: tf.constant(tf.make_ndarray(tensor)) for key, tensor in request.inputs.items()}
        outputs = signatures[request.model_spec.signature_name](**inputs)
        met.add((request.model_spec.signature_name, len(next(iter(outputs.values())))))
    assert met == {(signature, size) for signature in signatures for size in BATCH_SIZES}


@pytest.mark.parametrize(("numbers", "tolerance"), [("float32", 1e-5), ("float16", 5e-3)])
def test_litert_takes_any_batch(bundle, tiny_model, numbers, tolerance):
    runner = Interpreter(str(bundle / "litert" / f"tiny.{numbers}.tflite")).get_signature_runner(
        "serving_default"
    )
    expected = tiny_model(IMAGES, training=False)
    for size in (1, 5, 2):
        outputs = runner(images=IMAGES[:size])
        for key in ("scores", "poses"):
            np.testing.assert_allclose(outputs[key], expected[key][:size], atol=tolerance)


def test_onnx_takes_any_batch_and_has_operators_of_onnx_only(bundle, tiny_model):
    path = bundle / "onnx" / "tiny.onnx"
    model = onnx.load(path)
    assert [each.domain for each in model.opset_import] == [""]
    assert not {node.domain for node in model.graph.node} - {""}
    session = InferenceSession(str(path))
    assert [(each.name, each.shape[1:]) for each in session.get_inputs()] == [("images", [28, 28, 1])]
    expected = tiny_model(IMAGES, training=False)
    for size in (1, 5, 2):
        for key in ("scores", "poses"):
            (values,) = session.run([key], {"images": IMAGES[:size]})
            np.testing.assert_allclose(values, expected[key][:size], atol=1e-5)


def test_the_onnx_client_says_what_the_model_says_of_pictures(bundle, tiny_model, tmp_path):
    levels = np.round(IMAGES * 255).astype("uint8")
    paths = [tmp_path / f"{i}.png" for i in range(len(levels))]
    for path, picture in zip(paths, levels, strict=True):
        path.write_bytes(encoded(picture[..., 0]))
    labels, outputs = client("predict_onnx").predict(bundle, paths)
    assert labels == CLASSES
    expected = tiny_model(levels / np.float32(255), training=False)
    for key in ("scores", "poses"):
        np.testing.assert_allclose(outputs[key], expected[key], atol=1e-5)


@pytest.mark.parametrize("shape", [(96, 96, 2), (96, 96, 3), (96, 96, 1)])
def test_clients_read_pictures_as_the_command_line_does(shape, tmp_path):
    size = (96, 192) if shape[2] == 2 else (96, 96)
    path = tmp_path / "picture.png"
    path.write_bytes(encoded(np.random.default_rng(0).integers(0, 256, size, dtype="uint8")))
    np.testing.assert_allclose(client("pictures").read(path, *shape), read_image(path, shape), atol=1e-6)


@pytest.mark.slow
def test_a_network_without_classes_is_recorded_without_errors(altered, tmp_path, monkeypatch):
    published = capszoo.zoo.presets.get_preset("dynamic_mnist")
    monkeypatch.setattr(locating, "weights_folder", lambda: tmp_path)
    shutil.copytree(WEIGHTS / "dynamic_mnist", tmp_path / "tiny")
    recipe = dataclasses.replace(published.recipe, model=SparseCapsNet())
    preset = types.SimpleNamespace(name="tiny", card=published.card, recipe=recipe, outside=None)
    card = record_exports(preset, altered)
    assert "litert-int8" not in card.exports, "what int8 loses is not known, so it is not offered"
    assert not list(altered.rglob("*.int8.tflite"))
    verify(altered)
    assert {(format.wrong, format.n) for format in card.exports.values()} == {(None, None)}
    assert read_card(tmp_path / "tiny" / "card.json") == card
    assert card.to_markdown().count("| not measured |") == 4


def test_weights_in_eight_bits_that_are_withdrawn_leave_no_broken_bundle(altered, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(recording, "_finish_withdrawal", lambda bundle: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            recording._withdraw(altered, "litert-int8")
    assert list(altered.rglob("*.int8.tflite"))
    recording._finish_withdrawal(altered)
    assert not list(altered.rglob("*.int8.tflite"))
    require_whole(altered)


@pytest.mark.parametrize("options", [["--weights", "mine.safetensors"], []])
def test_numbers_of_other_weights_are_not_recorded(options, run, monkeypatch, tmp_path):
    """Of a file beside the published one, and of a preset without any."""
    preset = capszoo.get_preset("vae_mnist" if options else "sparse_mnist_expanded")
    monkeypatch.setattr(capszoo, "load", lambda name, weights: types.SimpleNamespace(preset=preset))
    monkeypatch.setattr(capszoo, "export", lambda *arguments, **options: pytest.fail("exported"))
    status, _, said = run("export", preset.name, "--out", tmp_path, "--record", *options)
    assert (status, "a preset and its published weights" in said) == (1, True)


def test_a_run_has_no_card_to_record_in(tmp_path):
    preset = dataclasses.replace(capszoo.get_preset("vae_mnist"), run=tmp_path)
    with pytest.raises(ValueError, match="published weights is needed"):
        record_exports(preset, tmp_path)


def test_a_bundle_says_which_weights_it_has(published, tiny_model, tmp_path):
    save_weights(tiny_model, tmp_path / "weights.safetensors")
    weights = identity.of_model(tiny_model)
    assert weights == identity.of_bundle(published[0]) == identity.of_file(tmp_path / "weights.safetensors")
    other = keras.models.clone_model(tiny_model)
    other.set_weights([array + np.float32(0.1) for array in tiny_model.get_weights()])
    assert identity.of_model(other) != weights
    assert identity.of_bundle(tmp_path) is None


def test_an_artefact_that_is_no_longer_the_network_is_not_recorded():
    """As an ONNX file was whose scores all lay below the least number that ONNX Runtime's sigmoid gives."""
    saved, converted = (ExportedFormat(7, {"scores": 0.0}, wrong, 1000, {}, "f00d") for wrong in (7, 17))
    said = r"onnx errs on 1\.70% \(17 of 1000\) of the test images, the SavedModel on 0\.70% \(7 of 1000\)"
    with pytest.raises(IntegrityError, match=said):
        recording._require_no_worse("onnx", converted, saved)
    recording._require_no_worse("onnx", dataclasses.replace(converted, wrong=16), saved)


@pytest.mark.parametrize(("wrong", "offered"), [(7, True), (16, True), (17, False)])
def test_int8_is_offered_where_it_errs_on_less_than_a_tenth_of_a_point_more(wrong, offered):
    saved = ExportedFormat(7, {"scores": 0.0}, 7, 10_000, {}, "f00d")
    assert recording._loses_little(dataclasses.replace(saved, wrong=wrong), saved) == offered


def test_a_saved_model_is_run_with_the_variables_that_its_bundle_names(monkeypatch):
    bundle = servers.newest(servers.PUBLISHED / "matrix_em_mnist")
    for value in ("1", "2"):
        function = runners(bundle)["saved-model"]
        variables = Path(f"/proc/{function.process.pid}/environ").read_bytes().split(b"\0")
        assert f"TF_NUM_INTRAOP_THREADS={value}".encode() in variables
        # The user's own counts.
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")


def test_a_saved_model_that_fails_says_why_and_leaves_no_process(bundle):
    ended, running = (runners(bundle)["saved-model"] for _ in range(2))
    with pytest.raises(RuntimeError, match=r"(?s)answer_script.py failed with status 1:.*28"):
        ended(np.zeros((1, 28, 28, 2), "float32"))
    process = running.process
    assert process.poll() is None
    del running
    assert process.returncode is not None


def test_an_answer_that_was_not_read_is_not_taken_for_the_next_one(bundle, monkeypatch):
    function = runners(bundle)["saved-model"]

    def interrupted(stream):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("pickle.load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            function(IMAGES[:1])
    with pytest.raises(RuntimeError, match=r"answer_script\.py failed with status -9"):
        function(IMAGES[:2])


def test_speeds_are_multiples_of_the_keras_models_and_cards_tell_them(bundle, tiny_model):
    def slow(images):
        time.sleep(0.05)
        return tiny_model.predict_on_batch(images)

    speeds = compare_bundle(
        types.SimpleNamespace(preprocess=Preprocessing(), predict_on_batch=slow), bundle, 0
    )
    assert set(speeds) == {"saved-model", "litert-float32", "litert-float16", "litert-int8", "onnx"}
    assert {tuple(speed) for speed in speeds.values()} == {("1", "32")}
    assert min(speed["1"] for speed in speeds.values()) > 2
    formats = {
        name: ExportedFormat(7, {"scores": 0.0}, None, None, speed, "f00d") for name, speed in speeds.items()
    }
    preset = capszoo.get_preset("dynamic_mnist")
    card = dataclasses.replace(preset.card, exports=formats)
    lines = card.to_markdown().splitlines()
    assert any(
        line.endswith("| speed at batch 1, Keras = 1 | speed at batch 32, Keras = 1 | sha256 |")
        for line in lines
    )
    fastest = f"| {speeds['saved-model']['1']:.2f} | {speeds['saved-model']['32']:.2f} | `f00d` |"
    assert any(line.startswith("| saved-model | 7 |") and line.endswith(fastest) for line in lines)
    rows = artefact_table([dataclasses.replace(preset, card=card)])
    assert f"{speeds['litert-float16']['32']:.2f} at batch 32" in " ".join(rows.columns[-1].cells)


# Nothing half-written, nothing overwritten


def test_an_existing_version_is_never_overwritten_and_the_next_free_one_is_named(bundle, tiny_model):
    before = (bundle / "export.json").stat().st_mtime_ns
    with pytest.raises(FileExistsError, match=r"version 3 of 'tiny' exists.*next free version is 4"):
        export(tiny_model, bundle.parent.parent, name="tiny", version=3, stages=NET.stages)
    assert (bundle / "export.json").stat().st_mtime_ns == before


@pytest.fixture(scope="module")
def least():
    """A network that is exported in no time."""
    return VariationalAutoencoder(latents=2, hidden=3).build((8, 8, 1))


def test_an_export_that_fails_leaves_nothing_behind(least, tmp_path, monkeypatch):
    def full_disk(*_):
        seen.extend(path.name for path in tmp_path.iterdir())
        raise OSError(28, "No space left on device")

    seen = []
    monkeypatch.setattr(capszoo.exporting.bundle, "run_alone", full_disk)
    with pytest.raises(OSError, match="No space left"):
        export(least, tmp_path, name="least", stages=["hidden"])
    assert len(seen) == 1
    assert seen[0].startswith("."), "while it is written, the bundle is hidden"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("room", [10_000, 400_000])
def test_a_full_disk_is_an_error_of_one_line_that_names_the_bundle(tiny_model, tmp_path, room):
    """It is met by TensorFlow, or at last by the converter, in its own process."""
    with full_disk(room), pytest.raises(OSError, match=r"File too large: '.*/tiny/1'") as error:
        export(tiny_model, tmp_path, name="tiny", stages=NET.stages)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_artefact_that_deviates_is_never_published(least, tmp_path, monkeypatch):
    measured = {"deviations": {"litert-float32": {"code": 2e-4, "hidden": 0.0}}, "libraries": {}}
    monkeypatch.setattr(capszoo.exporting.bundle, "run_alone", lambda *_: None)
    monkeypatch.setattr(capszoo.exporting.bundle, "measure", lambda _: measured)
    with pytest.raises(IntegrityError, match=r"litert-float32 .*code deviate by 0\.0002"):
        export(least, tmp_path, name="least", stages=["hidden"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a/b"}, "name must be .*Received: 'a/b'"),
        ({"name": "a run"}, "name must be .*Received: 'a run'"),
        ({"name": ".run"}, "name must be .*Received: '.run'"),
        ({"version": 0}, "version must be .*Received: 0"),
        ({"version": "2"}, "version must be .*Received: '2'"),
        ({"stages": None}, "stages is needed"),
        ({"stages": ("conv7",)}, r"names of layers.*Received: \['conv7'\]"),
        ({"class_names": ["a"]}, r"10 class names.*Received: \['a'\]"),
        ({"class_names": [*"abcdefghi", "j\nk"]}, r"one line each\. Received: \['j\\nk'\]"),
        ({"image_shape": (32, 32, 1)}, r"images of \(28, 28, 1\).*Received image_shape \(32, 32, 1\)"),
        ({"examples": IMAGES[:, :20]}, r"examples must be images of.*Received: \(5, 20, 28, 1\)"),
        ({"examples": IMAGES * 255}, r"images must be numbers in \[0, 1\]"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_anything_is_written(
    tiny_model, tmp_path, options, message
):
    with pytest.raises(ValueError, match=message):
        export(tiny_model, tmp_path, **{"name": "tiny", "stages": NET.stages, **options})
    assert not list(tmp_path.iterdir())


def test_a_model_without_scores_is_refused(tmp_path):
    images = keras.Input((8, 8, 1))
    with pytest.raises(ValueError, match=r"outputs \('scores', 'poses'\) is needed"):
        export(keras.Model(images, keras.layers.Flatten()(images)), tmp_path, name="x", stages=("flatten",))


# Verification


def test_a_bundle_verifies_where_it_was_moved_to(altered, published):
    deviations = verify(altered)
    assert {key: set(outputs) for key, outputs in deviations.items()} == {
        key: set(outputs) for key, outputs in published[1]["deviations"].items()
    }


def test_a_folder_that_is_no_bundle_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no bundle"):
        verify(tmp_path)


def test_altered_missing_and_foreign_files_are_found(altered):
    labels = altered / "assets.extra" / "labels.txt"
    text = labels.read_text()
    labels.write_text(text.replace("class 1", "class 7"))
    with pytest.raises(IntegrityError, match=r"labels.txt: sha256 .* Received"):
        verify(altered)
    labels.write_text(text)
    (altered / "new.txt").touch()
    with pytest.raises(IntegrityError, match=r"new\.txt is not listed"):
        verify(altered)
    (altered / "new.txt").unlink()
    labels.unlink()
    with pytest.raises(IntegrityError, match=r"labels\.txt is missing"):
        verify(altered)


@pytest.mark.parametrize("contents", ["", "[1]", '{"files": {"a": 3}}', "[" * 10_000])
def test_a_damaged_report_is_an_error_that_names_it(altered, contents):
    (altered / "export.json").write_text(contents)
    with pytest.raises(IntegrityError, match=r"export\.json is damaged"):
        verify(altered)


@pytest.mark.slow
def test_an_artefact_of_another_model_is_found_even_where_the_hashes_agree(altered):
    path = altered / "assets.extra" / "examples" / "examples.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["poses"] = arrays["poses"] + np.float32(2e-5)
    np.savez_compressed(path, **arrays)
    report = json.loads((altered / "export.json").read_text())
    report["files"]["assets.extra/examples/examples.npz"] = {
        "sha256": sha256_of(path),
        "bytes": os.path.getsize(path),
    }
    (altered / "export.json").write_text(json.dumps(report))
    with pytest.raises(IntegrityError, match="poses deviate by 2e-05 from the Keras model; at most 1e-05"):
        verify(altered)


def test_what_the_last_bit_of_the_pixels_does_is_allowed_tenfold(altered):
    path = altered / "assets.extra" / "examples" / "rounding.json"
    rounding = json.loads(path.read_text())
    assert 0 < rounding["poses"] < 1e-6
    path.write_text(json.dumps({**rounding, "poses": 2e-6}))
    require_agreement(altered, {"serving_default": {"poses": 1.9e-5}})
    with pytest.raises(
        IntegrityError, match=r"poses deviate by 2\.1e-05 from the Keras model; at most 2e-05"
    ):
        require_agreement(altered, {"serving_default": {"poses": 2.1e-5}})
    with pytest.raises(IntegrityError, match="scores deviate by 2e-05"):
        require_agreement(altered, {"serving_default": {"scores": 2e-5}})


def test_outputs_that_are_no_numbers_are_a_deviation(bundle):
    with pytest.raises(IntegrityError, match="deviate by nan"):
        require_agreement(bundle, {"serving_default": {"scores": float("nan")}})


@pytest.mark.parametrize("wrong", ["alone", "in a batch"])
def test_a_number_that_is_none_alone_or_in_a_batch_only_is_found(monkeypatch, wrong):
    for name in ("capszoo", "keras"):
        # The script hides them from its process.
        monkeypatch.setitem(sys.modules, name, sys.modules[name])

    def function(images):
        broken = (len(images) == 1) == (wrong == "alone")
        return {"scores": np.full((len(images), 2), np.nan if broken else 1.0)}

    script = runpy.run_path(Path(capszoo.exporting.__file__).with_name("reload_script.py"))
    found = script["deviations"](function, np.zeros((3, 4)), {"scores": np.ones((3, 2))})
    assert np.isnan(found["scores"])


def test_what_converts_and_reloads_sees_no_accelerator():
    assert isolation._environment()["CUDA_VISIBLE_DEVICES"] == "-1"


def test_a_stage_named_as_an_output_does_not_loosen_its_agreement(bundle, tmp_path):
    altered = tmp_path / "altered"
    shutil.copytree(bundle, altered)
    with np.load(altered / EXAMPLES) as stored:
        arrays = dict(stored)
    np.savez(altered / EXAMPLES, **arrays, **{"features/scores": np.full((1, 2), 1e5)})
    rounding = json.loads((altered / ROUNDING).read_text(encoding="utf-8"))
    (altered / ROUNDING).write_text(json.dumps({**rounding, "features/scores": 0.0}), encoding="utf-8")
    require_agreement(altered, {"features": {"scores": 0.5}})
    with pytest.raises(IntegrityError, match=r"scores deviate by 0\.5"):
        require_agreement(altered, {"serving_default": {"scores": 0.5}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stages": "hidden"}, "stages must be a sequence of names of layers. Received: 'hidden'"),
        ({"class_names": "ab"}, "class names are needed. Received: 'ab'"),
        ({"version": 2**63}, "version must be an integer from 1 to"),
    ],
)
def test_texts_are_no_sequences_and_versions_are_what_servers_read(least, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        export(least, tmp_path, **{"name": "least", "stages": ("hidden",), **options})
    assert not list(tmp_path.iterdir())


def test_integers_of_numpy_are_taken_as_they_are_written(least, tmp_path, monkeypatch):
    measured = {"deviations": {}, "libraries": {}}
    monkeypatch.setattr(capszoo.exporting.bundle, "run_alone", lambda *_: None)
    monkeypatch.setattr(capszoo.exporting.bundle, "measure", lambda _: measured)
    shape = np.array([8, 8, 1])
    report = export(least, tmp_path, name="least", version=np.int64(2), image_shape=shape, stages=["hidden"])
    assert json.loads((tmp_path / "least" / "2" / "export.json").read_text(encoding="utf-8")) == report
    assert (report["version"], report["image_shape"]) == (2, [8, 8, 1])


def test_a_model_without_a_graph_of_layers_is_refused(tmp_path):
    for model in (keras.Sequential([keras.layers.Dense(2)]), type("Own", (keras.Model,), {})()):
        with pytest.raises(ValueError, match=r"a model of one input .* is needed\. Received: \[\]"):
            export(model, tmp_path, name="x")


def test_what_is_no_model_or_no_folder_is_refused_before_the_work(least, tmp_path):
    with pytest.raises(ValueError, match=r"a keras\.Model is needed.*Received: 'efficient_mnist'"):
        export("efficient_mnist", tmp_path, name="x")
    (tmp_path / "file").touch()
    for directory, name in ((tmp_path, "file"), (tmp_path / "file", "least")):
        with pytest.raises(NotADirectoryError, match=r"cannot be made: .*file is no folder"):
            export(least, directory, name=name, stages=("hidden",))


@pytest.mark.slow
def test_the_process_that_reloads_cannot_import_capszoo():
    script = Path(capszoo.exporting.__file__).with_name("reload_script.py")
    root = Path(capszoo.exporting.__file__).parents[2]
    code = f"import runpy, sys; sys.path.insert(0, {str(root)!r}); runpy.run_path({str(script)!r}); import capszoo"
    result = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert "import of capszoo halted" in result.stderr


def test_a_script_that_fails_is_an_error_with_its_last_words():
    with pytest.raises(RuntimeError, match=r"no_such_script.py failed with status 2:\n.*can't open file"):
        run_alone("no_such_script.py")


def test_a_script_that_fails_says_its_error_before_its_last_words():
    written = "\n".join(
        ["noise", "loc: error: 'tf.Odd' op is no builtin", *(f"%{i} = graph" for i in range(50))]
    )
    said = str(isolation._failure("convert.py", 1, written))
    assert said.startswith(
        "convert.py failed with status 1:\nloc: error: 'tf.Odd' op is no builtin\n%38 = graph"
    )


def test_what_an_int8_file_deviates_too_far_is_said_of_the_bundle_as_it_will_be_called(altered):
    with pytest.raises(
        IntegrityError, match=r"litert-int8 of models/tiny/1: .*\. Without int8 the other files"
    ):
        require_agreement(altered, {"litert-int8": {"poses": 5.0}}, "models/tiny/1")


def test_a_clone_that_does_not_know_its_preprocessing_is_refused(tmp_path):
    model = capszoo.create("matrix_em_smallnorb")
    with pytest.raises(ValueError, match=r"has lost what its images are.*copy\.deepcopy"):
        export(keras.models.clone_model(model), tmp_path, name="clone")
    clone = keras.models.clone_model(model)
    clone.preprocess = model.preprocess
    capszoo.exporting.bundle._check_model(clone)
    assert copy.deepcopy(model).preprocess.standardise


def test_a_network_without_capsules_serves_what_its_architecture_names(least):
    signatures = Signatures(least, Preprocessing(), (8, 8, 1), ("hidden",))
    outputs = signatures.serving_default(tf.zeros((1, 8, 8, 1)))
    assert {name: tuple(array.shape) for name, array in outputs.items()} == {"code": (1, 2, 2)}
