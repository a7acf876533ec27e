"""The kit's ONNX client reads pictures as the signature `predict_bytes` of the same bundle does."""

import io
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from exporting.requests import client, encoded, predict_bytes
from PIL import Image

from capszoo.exporting import servers


@pytest.fixture(scope="module")
def script():
    return client("predict_onnx")


@pytest.fixture(scope="module", params=["efficient_mnist", "matrix_em_smallnorb"])
def bundle(request):
    return servers.newest(servers.PUBLISHED / request.param)


@pytest.fixture(scope="module")
def signatures(bundle):
    return tf.saved_model.load(str(bundle)).signatures


def stripes(height, width, channels, dtype="uint8"):
    """Slow waves over all levels, other ones in each channel: scaling smooths them little."""
    y, x, c = np.ogrid[:height, :width, :channels]
    levels = 0.5 + 0.5 * np.sin(0.11 * x + 0.07 * y * (c + 1) + c)
    return (levels * np.iinfo(dtype).max).astype(dtype)


def pictures(bundle):
    """Encoded pictures by kind, of the size that the network takes or another one of the same shape."""
    height, width, channels = json.loads((bundle / "export.json").read_text())["image_shape"]
    width *= 2 if channels == 2 else 1
    grey = stripes(height, width, 1)
    examples = sorted((bundle / "assets.extra" / "examples").glob("*.png"))
    return {
        "an example": examples[0].read_bytes(),
        "grey": encoded(grey[..., 0]),
        "grey of 16 bits": tf.io.encode_png(stripes(height, width, 1, "uint16")).numpy(),
        "dark grey of 16 bits": tf.io.encode_png(stripes(height, width, 1, "uint16") // 200).numpy(),
        "colour": encoded(stripes(height, width, 3)),
        "transparent colour": encoded(stripes(height, width, 4)),
        "one transparent grey": _with_a_transparent_grey(grey[..., 0]),
        "transparent grey": tf.io.encode_png(stripes(height, width, 2)).numpy(),
        "larger": encoded(stripes(3 * height, 3 * width, 3)),
        "smaller": encoded(stripes(height // 2, width // 2, 1)[..., 0]),
    }


def _with_a_transparent_grey(grey):
    """A PNG without an alpha channel, whose commonest grey is named transparent."""
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "PNG", transparency=int(np.bincount(grey.ravel()).argmax()))
    return buffer.getvalue()


KINDS = list(pictures(servers.newest(servers.PUBLISHED / "efficient_mnist")))


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_read_as_the_signature_reads_it(script, bundle, signatures, tmp_path, kind):
    picture = pictures(bundle)[kind]
    (tmp_path / "0.png").write_bytes(picture)
    labels, outputs = script.predict(bundle, [tmp_path / "0.png"])
    assert len(labels) == outputs["scores"].shape[-1]
    np.testing.assert_allclose(outputs["scores"], predict_bytes(signatures, picture), atol=1e-5)


def test_a_single_view_is_not_taken_for_two(script, tmp_path):
    bundle = servers.newest(servers.PUBLISHED / "matrix_em_smallnorb")
    Image.fromarray(stripes(96, 96, 1)[..., 0]).save(tmp_path / "0.png")
    with pytest.raises(ValueError, match=r"two views .* Received: 96x96 pixels in .*0\.png"):
        script.predict(bundle, [tmp_path / "0.png"])


def test_without_class_names_the_place_of_the_score_is_printed(script, monkeypatch, capsys, tmp_path):
    published = servers.newest(servers.PUBLISHED / "efficient_mnist")
    report = json.loads((published / "export.json").read_text()) | {"class_names": None}
    shutil.copytree(published / "onnx", tmp_path / "onnx")
    (tmp_path / "export.json").write_text(json.dumps(report))
    picture = published / "assets.extra" / "examples" / "0.png"
    monkeypatch.setattr("sys.argv", ["predict_onnx.py", str(picture), "--bundle", str(tmp_path)])
    script.pictures.print_classes(script.predict, "")
    with np.load(published / "assets.extra" / "examples" / "examples.npz") as stored:
        best = stored["scores"][0].argmax()
    assert capsys.readouterr().out.startswith(f"{picture}: output {best} ")


def test_from_any_folder_the_bundle_of_the_kit_is_asked_and_a_mistake_is_one_line(
    script, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert servers.newest(servers.PUBLISHED / "efficient_mnist") == script.pictures.BUNDLE
    (tmp_path / "cut" / "onnx").mkdir(parents=True)
    (tmp_path / "cut" / "onnx" / "net.onnx").write_bytes(b"\x08")
    (tmp_path / "cut" / "export.json").write_text(json.dumps({"name": "net"}))
    mistakes = (((), "nope.png"), (("--bundle", "nowhere"), "nowhere"), (("--bundle", "cut"), "net.onnx"))
    for words, said in mistakes:
        monkeypatch.setattr("sys.argv", ["predict_onnx.py", "nope.png", *words])
        with pytest.raises(SystemExit, match=f"^error: .*{said}"):
            script.pictures.print_classes(script.predict, "")
