"""What somebody's own class forgets, or does twice, is said in words, and nothing is trained or replaced by it."""

import dataclasses
import enum
import math
import typing

import keras
import numpy as np
import pytest
from tiny import RECIPE

import capszoo
from capszoo import config, plugins
from capszoo.cli.app import trained
from capszoo.config import ConfigError, parse_section, section, to_mapping
from capszoo.data import Mnist
from capszoo.data.split import Split
from capszoo.models import ConvNet, Objective
from capszoo.protocols import get_protocol
from capszoo.protocols.classification import ShareOfWrong
from capszoo.protocols.subject import Subject
from capszoo.training.claim import claim
from capszoo.training.recipe import Recipe, parse_recipe
from capszoo.training.run import train
from capszoo.zoo import recipes
from capszoo.zoo.card import read_card, write_card
from capszoo.zoo.publishing import publish

TINY = {
    "model": {"name": "cnn", "channels": [2, 2], "hidden": 4},
    "data": {"name": "mnist", "validation": 50},
    "train": {"epochs": 1, "batch_size": 50},
}


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    """What a test registers is forgotten after it, but for the zoo's own protocols, which register once."""
    get_protocol("test_error")
    monkeypatch.setattr(config, "_SECTIONS", {kind: dict(known) for kind, known in config._SECTIONS.items()})


def recipe_of(**parts) -> Recipe:
    return parse_recipe("tiny", {kind: {**TINY[kind], **parts.get(kind, {})} for kind in TINY})


def test_a_name_that_another_class_has_is_refused():
    """Else a protocol of somebody's would stand beside the paper's number as that of the zoo."""
    with pytest.raises(ValueError, match=r"protocol 'test_error' is capszoo\.protocols\.classification"):

        @section("protocol", "test_error")
        @dataclasses.dataclass(frozen=True)
        class Mine(ShareOfWrong):
            pass


def test_a_class_has_one_name():
    @section("data", "first")
    @dataclasses.dataclass(frozen=True)
    class Mine(Mnist):
        pass

    with pytest.raises(ValueError, match=r"is data 'first' already\. Received: 'second'"):
        section("data", "second")(Mine)
    section("data", "first")(Mine)


def test_what_a_class_should_say_of_itself_and_does_not_is_named():
    @section("protocol", "unsourced")
    @dataclasses.dataclass(frozen=True)
    class Mine(capszoo.protocols.NumberProtocol):
        def number(self, subject, progress):
            return {}

    with pytest.raises(ConfigError, match="Mine must say what its metric, source is"):
        parse_section("protocol", {"name": "unsourced"})


class Kind(enum.Enum):
    ONE = 1


@dataclasses.dataclass(frozen=True)
class Inner:
    width: int = 1


@dataclasses.dataclass(frozen=True)
class Net(ConvNet):
    inner: Inner = Inner()
    several: tuple[Inner, ...] = ()
    window: int | tuple[int, int] = 3
    amount: float | typing.Literal["auto"] = "auto"
    axis: int = -1
    extra: int | None = None


def test_options_of_any_type_that_is_parsed_are_written_and_read_again(tmp_path):
    section("model", "net")(Net)
    given = {
        "name": "net", "inner": {"width": 2}, "several": [{"width": 3}], "window": [3, 5], "amount": 0.5, "extra": 0,
    }  # fmt: skip
    net = parse_section("model", given)
    assert (net.inner, net.several, net.window, net.amount) == (Inner(2), (Inner(3),), (3, 5), 0.5)
    assert parse_section("model", to_mapping(net)) == net
    assert parse_section("model", {"name": "net", "window": 7}).window == 7
    claim(recipe_of(model=given), tmp_path)
    # -1 by default, and 0 where nothing is the default, are no widths.
    net.build((20, 20, 1), 3)
    recipe_of(model={"name": "net", "channels": [2, 2], "hidden": 4, "extra": 0}).build()


def test_options_of_a_type_that_yaml_does_not_have_are_refused_before_training(tmp_path):
    @section("model", "odd")
    @dataclasses.dataclass(frozen=True)
    class Odd(ConvNet):
        kind: Kind = Kind.ONE

    with pytest.raises(ConfigError, match="model: its options cannot be written and read again"):
        claim(recipe_of(model={"name": "odd"}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_options_that_are_others_when_they_are_read_again_are_refused_before_training(tmp_path):
    @section("model", "growing")
    @dataclasses.dataclass(frozen=True)
    class Growing(ConvNet):
        width: int = 4

        def __post_init__(self):
            object.__setattr__(self, "width", self.width + 1)

    with pytest.raises(ConfigError, match="model: its options are others when they are read again"):
        claim(recipe_of(model={"name": "growing"}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_weights_that_a_file_could_not_tell_apart_are_refused():
    class Pair(keras.layers.Layer):
        def __init__(self, **options):
            super().__init__(**options)
            self.parts = [keras.layers.Dense(3, name="dense"), keras.layers.Dense(3, name="dense")]

        def call(self, inputs):
            return self.parts[0](inputs) + self.parts[1](inputs)

    @section("model", "pair")
    @dataclasses.dataclass(frozen=True)
    class Net(ConvNet):
        def build(self, image_shape, num_classes, labels_per_image=1):
            images = keras.Input(image_shape, name="images")
            scores = Pair(name="pair")(keras.layers.Flatten()(images))
            return self.network(images, {"scores": scores, "logits": scores})

    with pytest.raises(ConfigError, match="several weights have one path, pair/dense/"):
        recipe_of(model={"name": "pair"}).build()


def test_a_head_that_is_a_text_is_refused():
    """Each of its letters would be the beginning of paths, and all weights new."""

    @section("model", "headless")
    @dataclasses.dataclass(frozen=True)
    class Net(ConvNet):
        head: typing.ClassVar[str] = "logits/"

    with pytest.raises(ConfigError, match=r"head must be a tuple of texts\. Received: 'logits/'"):
        recipe_of(model={"name": "headless"}).build()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"head": ("logit_layer/",)}, r"head of 'misnamed' names 'logit_layer/', and it has no such weight"),
        ({"served": ("scores", "poses")}, r"served of .* names 'poses', and it has no such output.*scores"),
        ({"stages": ("conv1", "convv2")}, r"stages of .* 'convv2', and it has no such layer; .* 'conv2'\?"),
    ],
)
def test_names_of_what_a_network_does_not_have_are_refused_before_training(names, message):
    """Else old class capsules would be kept for other classes, and a bundle fail after the training."""
    section("model", "misnamed")(dataclasses.dataclass(frozen=True)(type("Net", (ConvNet,), names)))
    with pytest.raises(ConfigError, match=message):
        recipe_of(model={"name": "misnamed"}).build()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "test_eror",
            r"mine\.yaml: card\.protocols: unknown protocol 'test_eror'; did you mean 'test_error'\?",
        ),
        ("viewpoints", r"'viewpoints' gives a report, and a card has numbers"),
    ],
)
def test_protocols_that_no_card_can_have_are_refused_before_training(name, message, tmp_path):
    (tmp_path / "mine.yaml").write_text(RECIPE.replace("test_error", name), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        recipes.read_recipe(tmp_path / "mine.yaml")


def test_a_protocol_may_count_with_numpy(tmp_path):
    @section("protocol", "numpys")
    @dataclasses.dataclass(frozen=True)
    class Mine(ShareOfWrong):
        def number(self, subject, progress):
            wrong = np.arange(3).sum()
            interval = (np.float32(0), np.float32(1))
            about = {"data": "mnist", "fingerprint": "0" * 64}
            return {
                "value": np.float64(0.3),
                "interval": interval,
                "wrong": wrong,
                "n": np.int32(10),
                **about,
            }

    measured = Mine().measure([Subject("x", recipe_of(), None)])
    assert (measured.value, measured.interval, measured.wrong, measured.n) == (0.3, (0, 1), 3, 10)
    card = capszoo.get_preset("efficient_mnist").card
    write_card(dataclasses.replace(card, metrics=(measured,)), tmp_path)
    assert read_card(tmp_path / "card.json").metrics == (measured,)


class Images(Split):
    """Twelve images, with pixels and labels as they are given."""

    def __init__(self, labels=(0, 1, 2), largest=1.0, count=12):
        self.labels, self.largest, self.count = np.resize(labels, count), largest, count

    def __len__(self):
        return self.count

    def batch(self, indices, rng=None):
        images = np.full((len(indices), 28, 28, 1), self.largest, "float32")
        return {"images": images, "labels": self.labels[indices]}

    def fingerprint(self):
        return "0" * 64


@pytest.mark.parametrize(
    ("train_images", "validation_images", "message"),
    [
        ({"labels": (-1, 0, 1)}, {}, r"labels must be in \[0, 10\).* -1 to 1"),
        ({"labels": (1, 10)}, {}, r"labels must be in \[0, 10\).* 1 to 10"),
        ({"labels": (0.5, 1)}, {}, "labels must be integers"),
        ({"largest": 255.0}, {}, r"numbers in \[0, 1\]"),
        ({}, {"labels": (-1, 0)}, r"labels must be in \[0, 10\).* -1 to 0"),
        ({}, {"count": 0}, "without images"),
    ],
)
def test_images_and_labels_are_looked_at_before_anything_is_trained(
    train_images, validation_images, message, tmp_path
):
    @section("data", "mine")
    @dataclasses.dataclass(frozen=True)
    class Mine(Mnist):
        def open(self, split):
            return Images(**(train_images if split == "train" else validation_images))

    recipe = recipe_of(data={"name": "mine"}, train={"batch_size": 4})
    with pytest.raises(ConfigError, match=message):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


@pytest.mark.parametrize("label", [-1, 10])
def test_a_label_of_no_class_ends_the_training_that_comes_upon_it(label, tmp_path):
    """Sets are often sorted by class, with what is not labelled at their end."""

    @section("data", "sorted")
    @dataclasses.dataclass(frozen=True)
    class Sorted(Mnist):
        validation: int = 0

        def open(self, split):
            return Images(labels=(*[0] * 40, *[label] * 8), count=48)

    recipe = recipe_of(data={"name": "sorted"}, train={"batch_size": 4})
    with pytest.raises(ConfigError, match=r"data: labels must be in \[0, 10\)"):
        train(recipe, tmp_path / "run")


def test_the_validation_error_is_that_of_the_scores_whatever_the_loss_looks_at(data, tmp_path):
    @section("model", "of_logits")
    @dataclasses.dataclass(frozen=True)
    class Net(ConvNet):
        def objective(self, model, labels_per_image=1):
            loss = keras.losses.CategoricalCrossentropy(from_logits=True)
            one_hot = lambda labels: keras.ops.one_hot(labels, model.output["scores"].shape[-1])  # noqa: E731
            return Objective(
                keras.Model(model.input, {"logits": model.output["logits"]}),
                {"logits": loss},
                {},
                lambda batch: (batch["images"], {"logits": one_hot(batch["labels"])}),
            )

    recipe = recipe_of(model={"name": "of_logits"})
    record = train(recipe, tmp_path / "run")
    assert 0 <= record["validation_error"] <= 1
    model = recipe.build()
    model.compile("adam")
    images = np.zeros((4, 28, 28, 1), "float32")
    assert math.isfinite(model.fit(images, np.arange(4), verbose=0).history["loss"][0])


def test_a_card_that_nobody_could_read_is_not_written(tmp_path):
    card = capszoo.get_preset("efficient_mnist").card
    broken = dataclasses.replace(card.metrics[0], value=math.nan)
    with pytest.raises(ConfigError, match=r"card of efficient_mnist.*value: expected float\. Received: nan"):
        write_card(dataclasses.replace(card, metrics=(broken,)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_preset_is_not_replaced_by_another_network_of_its_name(data, tmp_path):
    (tmp_path / "efficient_mnist.yaml").write_text(RECIPE, encoding="utf-8")
    recipe = recipes.read_recipe(str(tmp_path / "efficient_mnist.yaml"))
    train(recipe, tmp_path / "run")
    card = capszoo.get_preset("efficient_mnist").card
    (tmp_path / "zoo" / "efficient_mnist").mkdir(parents=True)
    write_card(card, tmp_path / "zoo" / "efficient_mnist")
    with pytest.raises(
        ConfigError, match=r"of efficient and mnist; it is not replaced by .* dynamic and mnist"
    ):
        publish(recipe, tmp_path / "run", tmp_path / "zoo")
    assert (tmp_path / "zoo" / "efficient_mnist" / "card.json").read_text() == card.to_json()


def test_commands_for_the_record_import_what_this_one_was_told_to(monkeypatch):
    monkeypatch.setenv(plugins.VARIABLE, "one,other")
    assert plugins.command("list") == ["capszoo", "--import", "one", "--import", "other", "list"]
    monkeypatch.setenv(plugins.VARIABLE, "")
    assert plugins.command("list") == ["capszoo", "list"]


def test_a_presets_name_is_the_presets_beside_a_run_in_a_folder_of_that_name(monkeypatch, tmp_path):
    (tmp_path / "efficient_mnist").mkdir()
    (tmp_path / "efficient_mnist" / "recipe.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert trained("efficient_mnist").recipe.name == "efficient_mnist"
