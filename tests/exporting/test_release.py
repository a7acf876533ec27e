"""A release: every bundle, what the cards say of it, and one list of models for a server."""

import json
import shutil
import subprocess

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

import capszoo
from capszoo.config import ConfigError
from capszoo.exporting import identity, release, verify
from capszoo.exporting.artefacts import artefact_files, checksum
from capszoo.exporting.servers import PUBLISHED, newest
from capszoo.exporting.verification import listing
from capszoo.zoo import locating
from capszoo.zoo.card import read_card
from capszoo.zoo.integrity import IntegrityError

CARDS = locating.weights_folder()


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """The folder of weights, a copy of what these tests change."""
    for name in ("efficient_mnist", "vae_mnist"):
        shutil.copytree(CARDS / name, tmp_path / "weights" / name)
    monkeypatch.setattr(locating, "weights_folder", lambda: tmp_path / "weights")
    return tmp_path / "weights"


def names_in(models_config):
    config = text_format.Parse(models_config.read_text(), model_server_config_pb2.ModelServerConfig())
    return {model.name: model.base_path for model in config.model_config_list.config}


@pytest.mark.parametrize("folder", sorted(PUBLISHED.iterdir()), ids=lambda folder: folder.name)
def test_cards_carry_the_checksums_of_the_published_bundles(folder):
    exports = read_card(CARDS / folder.name / "card.json").exports
    files = artefact_files(newest(folder))
    assert {name: exports[name].sha256 for name in files} == {name: checksum(files[name]) for name in files}


@pytest.mark.parametrize("folder", sorted(PUBLISHED.iterdir()), ids=lambda folder: folder.name)
def test_published_bundles_have_the_published_weights(folder):
    weights = locating.find_file(capszoo.get_preset(folder.name), locating.WEIGHTS)
    assert identity.of_bundle(newest(folder)) == identity.of_file(weights)


def test_a_checksum_is_what_the_usual_tool_says_of_the_files(tmp_path):
    paths = [tmp_path / "b", tmp_path / "a"]
    for path, text in zip(paths, ("first", "second"), strict=True):
        path.write_text(text)
    said = subprocess.run(
        "cat b a | sha256sum", shell=True, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert checksum(paths) == said.stdout.split()[0]


def test_a_published_bundle_is_taken_as_it_is_and_its_card_says_which(tmp_path, weights):
    card = read_card(weights / "efficient_mnist" / "card.json")
    blank = json.loads(card.to_json())
    for artefact in blank["exports"].values():
        artefact["sha256"] = ""
    del blank["exports"]["onnx"]
    (weights / "efficient_mnist" / "card.json").write_text(json.dumps(blank))

    (bundle,) = release.release(tmp_path / "models", ["efficient_mnist"])
    assert bundle == tmp_path / "models" / "efficient_mnist" / "1"
    for path in newest(PUBLISHED / "efficient_mnist").rglob("*"):
        twin = bundle / path.relative_to(newest(PUBLISHED / "efficient_mnist"))
        assert path.is_dir() or path.read_bytes() == twin.read_bytes()
    assert names_in(tmp_path / "models" / "models.config") == {"efficient_mnist": "/models/efficient_mnist"}

    again = read_card(weights / "efficient_mnist" / "card.json")
    assert {name: e.sha256 for name, e in again.exports.items()} == {
        name: checksum(files) for name, files in artefact_files(bundle).items()
    }
    assert again.exports["saved-model"] == card.exports["saved-model"], "errors and speeds stay"
    assert again.exports["onnx"].errors() == "not measured"
    assert again.to_markdown() == (weights / "efficient_mnist" / "README.md").read_text(encoding="utf-8")


def test_a_bundle_of_other_weights_is_not_taken(tmp_path, weights, monkeypatch):
    exported = []

    def export(model, directory, *, name, version, int8):
        exported.append((name, version))
        target = shutil.copytree(newest(PUBLISHED / name), directory / name / str(version))
        _alter(target, weights=identity.of_model(model))

    present = tmp_path / "models" / "efficient_mnist" / "3"
    shutil.copytree(newest(PUBLISHED / "efficient_mnist"), present)
    _alter(present, weights="of another training")
    shutil.copytree(PUBLISHED / "efficient_mnist", tmp_path / "published" / "efficient_mnist")
    _alter(newest(tmp_path / "published" / "efficient_mnist"), weights="of another training")
    monkeypatch.setattr(release, "PUBLISHED", tmp_path / "published")
    monkeypatch.setattr(release, "export", export)
    (bundle,) = release.release(tmp_path / "models", ["efficient_mnist"])
    assert exported == [("efficient_mnist", 4)]
    assert bundle == present.parent / "4"


def test_a_bundle_that_somebody_changed_is_not_vouched_for(tmp_path, weights):
    release.release(tmp_path / "models", ["efficient_mnist"])
    labels = tmp_path / "models" / "efficient_mnist" / "1" / "assets.extra" / "labels.txt"
    labels.write_text("other\n")
    with pytest.raises(IntegrityError, match=r"labels\.txt"):
        release.release(tmp_path / "models", ["efficient_mnist"])


def test_a_second_release_lists_the_first_ones_models_too(tmp_path, weights):
    has = tmp_path / "models" / "other" / "1"
    has.mkdir(parents=True)
    (has / "saved_model.pb").touch()
    release.release(tmp_path / "models", ["efficient_mnist"])
    assert set(names_in(tmp_path / "models" / "models.config")) == {"efficient_mnist", "other"}


def _alter(bundle, **fields):
    report = json.loads((bundle / "export.json").read_text(encoding="utf-8"))
    (bundle / "export.json").write_text(json.dumps({**report, **fields}))


def test_half_a_copy_is_not_taken_for_a_bundle(tmp_path, weights, monkeypatch):
    def killed(source, target):
        target.mkdir(parents=True)
        shutil.copy2(source / "saved_model.pb", target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", killed)
        with pytest.raises(KeyboardInterrupt):
            release.release(tmp_path / "models", ["efficient_mnist"])
    assert newest(tmp_path / "models" / "efficient_mnist") is None
    (bundle,) = release.release(tmp_path / "models", ["efficient_mnist"])
    assert listing(bundle) == listing(newest(PUBLISHED / "efficient_mnist"))


def test_a_preset_without_weights_is_not_released(tmp_path, weights):
    for name in ("dynamic_fashion_mnist", "efficient_mnits"):
        with pytest.raises(ConfigError, match=name):
            release.release(tmp_path / "models", ["efficient_mnist", name])
    assert not (tmp_path / "models").exists()


@pytest.mark.slow
def test_a_preset_that_has_no_published_bundle_is_exported(tmp_path, weights):
    assert not newest(PUBLISHED / "vae_mnist")
    (bundle,) = release.release(tmp_path / "models", ["vae_mnist"])
    verify(bundle)
    exports = capszoo.get_preset("vae_mnist").card.exports
    assert set(exports) == {"saved-model", "litert-float32", "litert-float16", "onnx"}
    stamp = (bundle / "export.json").stat().st_mtime_ns
    release.release(tmp_path / "models", ["vae_mnist"])
    assert (bundle / "export.json").stat().st_mtime_ns == stamp, "what is there is not built again"
