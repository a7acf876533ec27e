"""From a preset to somebody's own problem."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from tiny import RECIPE
from tiny_pictures import CLASSES, write_folder

import capszoo
from capszoo.config import ConfigError
from capszoo.data import DataNotFound
from capszoo.training.folder import load_run
from capszoo.training.run import train
from capszoo.training.start import Start
from capszoo.training.weight_files import save_weights
from capszoo.zoo import finetuning
from capszoo.zoo.finetuning import finetuning_recipe
from capszoo.zoo.integrity import sha256_of
from capszoo.zoo.recipes import read_recipe
from capszoo.zoo.starting import find_start


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("own") / "My stripes", count=10)


def test_pictures_come_as_the_preset_knows_them(pictures):
    recipe = finetuning_recipe("matrix_em_mnist", str(pictures), ["train.epochs=3"])
    assert recipe.name == "matrix_em_mnist_my_stripes"
    assert recipe.data.image_shape == (28, 28, 1)
    assert not recipe.data.standardise
    assert recipe.data.class_names == CLASSES
    assert recipe.train.start_from == "matrix_em_mnist"
    assert recipe.train.epochs == 3
    assert recipe.train.batch_size == 21 // 4
    assert recipe.train.warmup_steps == 3 * (21 // 5) // 5
    sudden = finetuning_recipe("matrix_em_mnist", str(pictures), ["train.schedule=exponential"])
    assert sudden.train.warmup_steps == 0
    assert recipe.card.deviations == (
        "Begins with the weights of matrix_em_mnist, and is trained for a short time.",
    )
    fresh = finetuning_recipe("matrix_em_mnist", str(pictures), ["train.start_from=null"])
    assert fresh.train.start_from is None
    assert "random weights" in fresh.card.deviations[0]
    toys = finetuning_recipe("matrix_em_smallnorb", str(pictures), ["data.channels=1"])
    assert toys.data.image_shape == (32, 32, 1)
    assert toys.data.standardise
    with pytest.raises(ValueError, match="expected a stereo pair"):
        finetuning_recipe("matrix_em_smallnorb", str(pictures))


@pytest.mark.parametrize(("devices", "size"), [(1, 5), (2, 4), (4, 4), (8, 8)])
def test_a_batch_of_few_pictures_is_shared_equally_by_all_devices(pictures, monkeypatch, devices, size):
    monkeypatch.setattr(finetuning, "joined", lambda: SimpleNamespace(devices=devices))
    assert finetuning_recipe("matrix_em_mnist", str(pictures)).train.batch_size == size


@pytest.mark.parametrize(
    ("preset", "data", "options"),
    [
        ("dynamic_mnist_expanded", "mnist", {"pad": 6, "shift": 6}),
        ("matrix_em_smallnorb", "synthnorb", {"size": 36, "validation_instance": None}),
        ("dynamic_mnist_expanded", "fashion_mnist", {"pad": 0}),
        ("matrix_em_smallnorb", "eth80", {"size": 36, "crop": 32, "views": "all"}),
        ("consensus_em_smallnorb", "coil20", {"size": 50, "crop": 44}),
    ],
)
def test_a_set_of_the_same_kind_keeps_the_presets_options(preset, data, options):
    recipe = finetuning_recipe(preset, data, ["train.batch_size=8", "train.warmup_steps=0"])
    assert {name: getattr(recipe.data, name) for name in options} == options


@pytest.mark.parametrize("shape", [28, (28, 28), (28, 28, 0)])
def test_what_is_no_shape_of_images_is_refused(shape):
    with pytest.raises(ConfigError, match=r"image_shape must be \(H, W, C\)"):
        capszoo.create("matrix_em_mnist", image_shape=shape)


def test_a_network_that_tells_no_classes_is_not_fine_tuned(pictures, monkeypatch):
    with pytest.raises(ConfigError, match=r"fine-tuning needs an architecture that classifies"):
        finetuning_recipe("vae_mnist", str(pictures))
    with pytest.raises(ConfigError, match=r"a folder of pictures or a data set"):
        finetuning_recipe("matrix_em_mnist", "No such/folder of/mine")
    monkeypatch.chdir(pictures.parent.parent)
    path = f"{pictures.parent.name}/pictres"
    with pytest.raises(DataNotFound, match=f"^there is no folder '{path}'$"):
        finetuning_recipe("matrix_em_mnist", path)
    with pytest.raises(DataNotFound, match="there is no folder 'pictres', and the data set 'pictres'"):
        finetuning_recipe("matrix_em_mnist", "pictres")


def test_a_run_knows_its_pictures_from_any_working_directory(pictures, monkeypatch):
    monkeypatch.chdir(pictures.parent)
    recipe = finetuning_recipe("matrix_em_mnist", pictures.name)
    assert recipe.data.path == str(pictures)
    assert recipe.name == "matrix_em_mnist_my_stripes"


def test_class_capsules_of_other_classes_are_not_taken_over(tmp_path):
    digits = read_recipe("matrix_em_mnist")
    clothes = read_recipe("matrix_em_mnist", ["data.name=fashion_mnist"])
    start = find_start("matrix_em_mnist")
    assert start.class_names == digits.data.class_names
    model = clothes.build()
    fresh = start.give(clothes, model)
    assert fresh == [weight.path for weight in model.weights if weight.path.startswith("class_capsules/")]
    assert set(start.given(clothes, model)) == {weight.path for weight in model.weights} - set(fresh)
    assert start.give(digits, digits.build()) == []
    # A file of weights does not say what its classes are.
    save_weights(model, tmp_path / "weights.safetensors")
    assert Start(tmp_path / "weights.safetensors").give(clothes, clothes.build()) == []


def test_weights_of_another_network_are_warned_of(tmp_path, data):
    changed = ["model.variant=official", "model.num_iterations=3", "train.epochs=1", "train.images=64"]
    recipe = read_recipe(
        "matrix_em_mnist", ["train.start_from=matrix_em_mnist", "data.validation=0", *changed]
    )
    start = find_start("matrix_em_mnist")
    assert start.differences(read_recipe("matrix_em_mnist")) == []
    assert start.differences(recipe) == ["model.variant 'paper' -> 'official'", "model.num_iterations 2 -> 3"]
    with pytest.warns(
        UserWarning, match=r"trained with another model\.variant 'paper' -> 'official', model\.num"
    ):
        train(recipe, tmp_path / "run", find=find_start)


def test_other_class_names_have_class_capsules_of_their_own():
    model = capszoo.load("matrix_em_mnist", class_names=["cat", "dog", "cow"], freeze="class_capsules")
    assert model.output["scores"].shape == (None, 3)
    answer = model.classify(np.zeros((28, 28, 1), "uint8"))
    assert set(answer) == {"cat", "dog", "cow"}
    assert list(answer.values()) == sorted(answer.values(), reverse=True)
    learning = {weight.path.partition("/")[0] for weight in model.trainable_weights}
    assert learning == {"class_capsules"}


def test_images_of_another_shape_keep_the_weights_that_fit():
    grey = capszoo.load("matrix_em_mnist")
    wide = capszoo.load(
        "matrix_em_mnist", image_shape=(40, 48, 1), class_names=["a", "b"], pretrained_rate=0.1
    )
    assert wide.raw_shape == (40, 48, 1)
    # No weight of this network depends on the shape.
    same = capszoo.load("matrix_em_mnist", image_shape=(40, 48, 1))
    assert same.predict(np.zeros((1, 40, 48, 1), "float32"))["scores"].shape == (1, 10)
    weights = {weight.path: np.asarray(weight) for weight in grey.weights}
    assert all((np.asarray(weight) == weights[weight.path]).all() for weight in wide.weights[:4])
    assert not any(path.startswith("class_capsules/") for path in wide.rates)
    assert "conv1/kernel" in wide.rates
    coloured = capszoo.load("matrix_em_mnist", image_shape=(28, 28, 3))
    images = np.random.default_rng(0).uniform(size=(2, 28, 28, 1)).astype("float32")
    np.testing.assert_allclose(
        coloured.predict(np.repeat(images, 3, axis=-1))["scores"], grey.predict(images)["scores"], atol=1e-4
    )
    with pytest.raises(ConfigError, match="num_classes must be 2"):
        capszoo.load("matrix_em_mnist", class_names=["a", "b"], num_classes=3)


def test_what_is_wrong_with_the_test_pictures_is_said_before_the_training(tmp_path, monkeypatch):
    root = write_folder(tmp_path / "pictures", count=4, splits=("train", "test"))
    (root / "test" / CLASSES[0]).rename(root / "test" / "another")
    monkeypatch.setattr(finetuning, "train", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(ValueError, match=f"classes beside {', '.join(CLASSES)}: another"):
        capszoo.finetune("matrix_em_mnist", str(root), tmp_path / "run")


def test_a_users_own_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_folder(tmp_path / "pictures", count=4)
    assert finetuning_recipe("matrix_em_mnist", "~/pictures").data.class_names == CLASSES


SMALL = ["model.primary_types=2", "model.conv1_types=2", "model.conv2_types=2", "train.epochs=1"]


@pytest.fixture(scope="module")
def tuned(pictures, tmp_path_factory):
    """The card and the folder of a network whose scores are shifted."""
    folder = tmp_path_factory.mktemp("tuned") / "run"
    return capszoo.finetune("kernel_mnist", str(pictures), folder, overrides=SMALL)


def test_scores_that_the_loss_leaves_to_chance_are_probabilities(tuned):
    """Those of the network of the notebook: without that the highest score of each picture may be 1e-10."""
    card, folder = tuned
    recipe, model, _ = load_run(folder)
    images = recipe.data.open("train").batch(np.arange(21), None)["images"]
    assert np.sum(model.predict_on_batch(images)["scores"], axis=1).mean() == pytest.approx(1, abs=1e-3)
    assert card.files["best.safetensors"].sha256 == sha256_of(folder / "best.safetensors")


def test_of_several_processes_the_first_alone_measures_and_writes(tuned, pictures, monkeypatch):
    card, folder = tuned
    written = lambda: {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}  # noqa: E731
    before, left_to_the_first = written(), []
    second = SimpleNamespace(
        by_first=lambda function, *arguments: left_to_the_first.append(function), devices=1
    )
    monkeypatch.setattr(finetuning, "joined", lambda: second)
    monkeypatch.setattr(finetuning, "train", lambda *arguments, **options: None)
    assert capszoo.finetune("kernel_mnist", str(pictures), folder, overrides=SMALL) == (card, folder)
    assert len(left_to_the_first) == 1
    assert written() == before


def test_of_a_run_on_other_pictures_is_said_that_and_not_what_follows_from_their_number(tuned, tmp_path):
    _, folder = tuned
    more = write_folder(tmp_path / "My stripes", count=30)
    with pytest.raises(
        ConfigError, match="holds a run on other training images than those that are there now"
    ):
        capszoo.finetune("kernel_mnist", str(more), folder, overrides=SMALL)


@pytest.mark.slow
def test_a_run_is_fine_tuned_and_then_used_like_a_preset(data, pictures, tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    assert run("train", "tiny.yaml")[0] == 0
    status, out, err = run("finetune", "runs/tiny", pictures, "train.epochs=20", "train.learning_rate=3e-3")
    assert status == 0, err
    folder = tmp_path / "runs" / "tiny_my_stripes"
    card = json.loads((folder / "card.json").read_text())
    assert card["trained_on"] == card["metrics"][0]["data"] == "folder My stripes"
    assert card["metrics"][0]["n"] == 6
    assert card["metrics"][0]["value"] < 0.5
    assert "test error" in out
    picture = pictures / "lying" / "3.png"
    status, out, err = run("predict", picture, "--model", folder, "--resize")
    assert status == 0, err
    assert "lying" in out
    assert run("describe", folder)[0] == 0
    assert run("evaluate", folder)[0] == 0
    status, out, err = run("compare", folder)
    assert status == 0, err
    status, out, err = run("export", folder, "--out", tmp_path / "bundles")
    assert status == 0, err
    labels = tmp_path / "bundles" / "tiny_my_stripes" / "1" / "assets.extra" / "labels.txt"
    assert labels.read_text().split() == list(CLASSES)
    # Started again, it has nothing left to do, and says the same.
    assert run("finetune", "runs/tiny", pictures, "train.epochs=20", "train.learning_rate=3e-3")[0] == 0
