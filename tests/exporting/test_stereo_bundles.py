"""A bundle of stereo pairs, with a preset's preprocessing, says what the model says; and EM routing runs on phones."""

import json
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from exporting.requests import encoded, predict_bytes, scores_of
from support import fill
from tensorflow_serving.apis import prediction_log_pb2

import capszoo
from capszoo.cli import zoo
from capszoo.data import cropping, smallnorb
from capszoo.data.images import read_image
from capszoo.data.samples import render_toys, toys
from capszoo.exporting import export, record_exports
from capszoo.exporting.saved_model import BATCH_SIZES, decoded
from capszoo.zoo import locating
from capszoo.zoo.card import read_card

WEIGHTS = locating.weights_folder()


@pytest.fixture(scope="module")
def stereo():
    """Small matrix capsules for smallNORB, with weights of a size that makes routing and classes differ."""
    sizes = {"channels": 8, "primary_types": 2, "conv1_types": 3, "conv2_types": 3}
    overrides = [f"model.{name}={size}" for name, size in sizes.items()]
    return fill(capszoo.create("matrix_em_smallnorb", overrides=overrides), seed=3)


@pytest.fixture(scope="module")
def stereo_bundle(stereo, tmp_path_factory):
    directory = tmp_path_factory.mktemp("stereo")
    export(stereo, directory, name="stereo", image_shape=(96, 96, 2))
    return directory / "stereo" / "1"


@pytest.fixture(scope="module")
def stereo_signatures(stereo_bundle):
    return tf.saved_model.load(str(stereo_bundle)).signatures


def test_raw_images_of_an_unknown_shape_cannot_be_guessed(stereo, tmp_path, monkeypatch):
    monkeypatch.setattr(stereo, "raw_shape", None)
    with pytest.raises(ValueError, match="image_shape of raw images is needed"):
        export(stereo, tmp_path, name="stereo")


@pytest.mark.slow
def test_a_presets_preprocessing_stages_and_class_names_go_into_the_bundle(
    stereo, stereo_bundle, stereo_signatures
):
    report = json.loads((stereo_bundle / "export.json").read_text())
    assert report["stages"] == list(stereo.preset.recipe.model.stages)
    assert report["class_names"] == list(stereo.preset.recipe.data.class_names)
    images, _ = toys()
    expected = stereo(stereo.preprocess(images), training=False)
    served = stereo_signatures["serving_default"](images=tf.constant(images))
    for key in ("scores", "poses"):
        np.testing.assert_allclose(served[key], expected[key], atol=1e-5)
    assert np.ptp(expected["scores"], axis=0).max() > 0.01, "the toys must differ for this to mean anything"


@pytest.mark.slow
def test_em_routing_runs_on_a_phone(stereo, stereo_bundle):
    images, _ = toys()
    expected = stereo(stereo.preprocess(images), training=False)
    for numbers, tolerance in (("float32", 1e-5), ("float16", 5e-3)):
        path = stereo_bundle / "litert" / f"stereo.{numbers}.tflite"
        outputs = Interpreter(str(path)).get_signature_runner("serving_default")(images=images)
        for key in ("scores", "poses"):
            np.testing.assert_allclose(outputs[key], expected[key], atol=tolerance)


@pytest.mark.slow
def test_server_and_command_line_read_the_same_stereo_pair_from_a_file(stereo_signatures):
    for path in sorted(render_toys.FOLDER.glob("*.png")):
        np.testing.assert_allclose(
            predict_bytes(stereo_signatures, path.read_bytes()),
            scores_of(stereo_signatures, read_image(path, (96, 96, 2))[None]),
            atol=1e-5,
        )


def test_the_command_line_preprocesses_and_classifies_stereo_pairs(stereo, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(capszoo, "load", lambda name: stereo)
    paths = sorted(render_toys.FOLDER.glob("*.png"))
    zoo.predict(paths, model="matrix_em_smallnorb", out=tmp_path / "drawn.png")
    images, _ = toys()
    scores = np.asarray(stereo(stereo.preprocess(images), training=False)["scores"])
    names = stereo.preset.recipe.data.class_names
    lines = capsys.readouterr().out.splitlines()
    for line, path, row in zip(lines[: len(paths)], paths, scores, strict=True):
        assert line.startswith(f"{path.name}: {names[row.argmax()]} {row.max():.3f}")
    assert (tmp_path / "drawn.png").stat().st_size > 1000


def test_the_views_of_a_pair_are_scaled_each_by_itself():
    left, right = np.zeros((30, 30), "uint8"), np.full((30, 30), 255, "uint8")
    pair = decoded(tf.constant([encoded(np.hstack([left, right]))]), (12, 12, 2)).numpy()
    np.testing.assert_allclose(pair[..., 0], 0, atol=1e-6)
    np.testing.assert_allclose(pair[..., 1], 1, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(96, 96), (96, 191), (96, 96, 3)])
def test_a_single_view_is_not_taken_for_a_pair(stereo_signatures, shape):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"two views of the aspect ratio 96x96"):
        predict_bytes(stereo_signatures, encoded(np.full(shape, 200, "uint8")))


@pytest.mark.slow
def test_a_server_warms_up_with_stereo_pairs(stereo_bundle, stereo_signatures):
    path = stereo_bundle / "assets.extra" / "tf_serving_warmup_requests"
    log = [prediction_log_pb2.PredictionLog.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(path))]
    requests = [entry.predict_log.request for entry in log]
    pictures = [r for r in requests if r.model_spec.signature_name == "predict_bytes"]
    assert len(pictures) == len(BATCH_SIZES)
    assert path.stat().st_size < 50_000
    predict_bytes(stereo_signatures, *tf.make_ndarray(pictures[0].inputs["image_bytes"]))


@pytest.mark.slow
def test_test_errors_of_a_bundle_are_measured_on_raw_images(stereo, stereo_bundle, tmp_path, monkeypatch):
    """The labels are what the Keras model says: an artefact that is fed as the model is makes no mistake."""
    images = toys()[0][[0, 1, 2, 3, 4, 0]]
    labels = np.argmax(stereo(stereo.preprocess(images), training=False)["scores"], axis=-1)
    labels[5] = (labels[5] + 1) % 5

    def read_pairs(name, split, size, folders):
        levels = np.round(images * 255).astype("uint8")
        return cropping.resize(levels, size), {"category": labels, "instance": np.arange(6)}

    monkeypatch.setattr(smallnorb, "read_pairs", read_pairs)
    monkeypatch.setattr(locating, "weights_folder", lambda: tmp_path)
    shutil.copytree(WEIGHTS / "dynamic_mnist", tmp_path / "matrix_em_smallnorb")
    card = read_card(tmp_path / "matrix_em_smallnorb" / "card.json")
    preset = types.SimpleNamespace(
        name="matrix_em_smallnorb", card=card, outside=None, recipe=stereo.preset.recipe
    )

    exports = record_exports(preset, stereo_bundle).exports
    assert set(exports) == {"saved-model", "litert-float32", "litert-float16", "onnx"}
    assert {(format.wrong, format.n) for format in exports.values()} == {(1, 6)}
    assert read_card(tmp_path / "matrix_em_smallnorb" / "card.json").exports == exports


@pytest.mark.slow
def test_a_preset_without_weights_has_no_errors_to_record(stereo, stereo_bundle):
    with pytest.raises(
        ValueError, match=r"preset with published weights is needed. Received: matrix_em_smallnorb"
    ):
        record_exports(stereo.preset, stereo_bundle)
