"""Every recipe of the zoo says what to expect and can be read; a broken one is refused with the name of its fault."""

import re
import subprocess
import sys

import pytest
import yaml
from tiny import RECIPE

from capszoo import config
from capszoo.config import ConfigError
from capszoo.protocols import get_protocol
from capszoo.zoo import recipes
from capszoo.zoo.listing import list_models
from capszoo.zoo.presets import get_preset
from capszoo.zoo.recipes import mapping_of, parse_recipe, read_recipe

NAMES = recipes.names()
# So that no picture is looked at.
FOLDER = ["data.class_names=[a, b]", "data.size=28", "data.channels=1", "data.validation=0.1"]


@pytest.fixture
def path(tmp_path):
    """The file of a small recipe."""
    path = tmp_path / "tiny_mnist.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_a_stage_that_a_recipe_does_not_have_is_no_new_one():
    assert read_recipe("probabilistic_mnist", ["stages.parts.train.epochs=2"]).stages[0].train.epochs == 2
    with pytest.raises(ConfigError, match=r"stages\.part: unknown stage; did you mean 'parts'"):
        read_recipe("probabilistic_mnist", ["stages.part.train.epochs=2"])


def test_the_numbers_of_a_set_are_not_those_of_another_one():
    cifar = read_recipe("inverted_attention_cifar10")
    assert (cifar.dataset, cifar.card.protocols) == ("cifar10", {"test_error": 0.0486})
    other = read_recipe("inverted_attention_cifar10", ["data.set=svhn_cropped"])
    assert (other.dataset, other.data.set_name, other.card.protocols) == (
        "cifar10",
        "svhn_cropped",
        {"test_error": None},
    )


def test_options_that_another_data_set_does_not_have_are_left_out_with_a_warning():
    with pytest.warns(
        UserWarning, match=r"data\.turn, data\.stretch of the recipe left out: 'folder' has no such options"
    ):
        recipe = read_recipe("matrix_em_mnist", ["data.name=folder", "data.path=none", *FOLDER])
    assert (recipe.data.section_name, recipe.data.shift) == ("folder", 2)
    with pytest.raises(ConfigError, match=r"data\.turn: unknown key"):
        read_recipe("matrix_em_mnist", ["data.name=folder", "data.path=none", *FOLDER, "data.turn=1"])


@pytest.mark.parametrize(
    "data", ["{name: tfds, set: nowhere}", "{name: tfds}", "{name: folder, path: none}", None]
)
def test_the_data_that_a_recipe_is_written_for_need_not_be_there(path, data):
    text = re.sub(r"data: *\n(?:  .*\n)+|data: .*\n", f"data: {data}\n" if data else "", RECIPE)
    path.write_text(text, encoding="utf-8")
    recipe = read_recipe(path, ["data.name=mnist"])
    assert recipe.data.set_name == "mnist"
    assert recipe.card.protocols["test_error"] == (None if data else 0.0025)


def test_numbers_of_a_data_set_are_not_those_of_a_set_of_tensorflow_datasets(path):
    given = ["data.name=tfds", "data.set=flowers", *FOLDER]
    recipe = read_recipe(path, given)
    assert (recipe.dataset, recipe.data.set_name) == ("mnist", "flowers")
    assert recipe.card.protocols == {"test_error": None}


def test_a_name_of_data_that_is_no_text_is_refused_with_the_names():
    with pytest.raises(ConfigError, match=r"data\.name: unknown data \['a'\]"):
        read_recipe("dynamic_mnist", ["data.name=[a]"])


def test_a_set_of_tensorflow_datasets_is_found_by_its_name():
    assert list_models(dataset="cifar10") == ["inverted_attention_cifar10"]


@pytest.mark.parametrize(
    ("preset", "data", "left"),
    [
        ("matrix_em_smallnorb", "mnist", {"test_error"}),
        ("vae_mnist", "fashion_mnist", {"probe"}),
        ("dynamic_mnist_expanded", "fashion_mnist", {"test_error"}),
        ("dynamic_multimnist", "mnist", {"test_error"}),
        ("cnn_smallnorb", "eth80", {"test_error", "test_error_multicrop"}),
    ],
)
@pytest.mark.filterwarnings("ignore:data\\.")
def test_protocols_that_cannot_be_measured_on_other_data_are_left_out(preset, data, left):
    recipe = read_recipe(preset, [f"data.name={data}"])
    assert recipe.card.protocols == dict.fromkeys(left)
    for name in left:
        get_protocol(name).require_recipe(recipe)


def test_overrides_may_come_one_by_one():
    assert read_recipe("scae_mnist", iter(["train.epochs=77"])).train.epochs == 77
    with pytest.warns(UserWarning, match="left out: 'mnist' has no such options"):
        assert read_recipe("matrix_em_smallnorb", iter(["data.name=mnist"])).data.set_name == "mnist"


def test_a_name_of_data_that_equals_nothing_is_overridden_like_any_other(tmp_path):
    path = tmp_path / "odd.yaml"
    path.write_text("model: {name: dynamic}\ndata: {name: .nan}\n", encoding="utf-8")
    assert read_recipe(path, ["data.name=mnist"]).data.set_name == "mnist"


def test_the_zoo_has_recipes():
    assert "dynamic_mnist" in NAMES


@pytest.mark.parametrize("name", NAMES)
class TestEveryRecipe:
    def test_can_be_read_and_gives_a_whole_card(self, name):
        recipe = read_recipe(name)
        assert recipe.name == name
        assert recipe.card.title
        assert recipe.card.reference
        assert recipe.data.licence
        assert recipe.card.licence == "Apache-2.0"
        assert recipe.card.protocols

    def test_is_named_after_its_architecture(self, name):
        assert name.startswith(read_recipe(name).model.section_name + "_")

    def test_says_at_its_head_what_to_expect_at_what_cost_by_which_command(self, name):
        text = (recipes.folder() / f"{name}.yaml").read_text(encoding="utf-8")
        head = text[: re.search(r"^[^#]", text, re.MULTILINE).start()]
        for word in ("Paper", "Expected", "Cost", "Command"):
            assert re.search(rf"^# {word}: +\S.{{9,}}$", head, re.MULTILINE), (
                f"no line '# {word}: ...' in\n{head}"
            )
        assert re.search(rf"^# Command: .*\bcapszoo train {name}\b", head, re.MULTILINE)
        assert len(head.strip().splitlines()) <= 12, "what was tried besides belongs in docs/notes.md"

    def test_expects_at_its_head_what_its_card_has_measured(self, name):
        """The first number of the card: an error, or the accuracy that it leaves."""
        card = get_preset(name).card
        if card is None:
            return
        text = (recipes.folder() / f"{name}.yaml").read_text(encoding="utf-8")
        expected = re.search(r"^# Expected:(.*?)^(?:# [A-Z]\w+:|[^#])", text, re.MULTILINE | re.DOTALL)[1]
        first = card.metrics[0]
        accuracies = [f"{100 * (1 - first.value):.{digits}f}" for digits in (1, 2)]
        assert any(number in expected for number in (first.text(first.value).rstrip("%"), *accuracies))

    def test_names_only_protocols_that_there_are(self, name):
        from capszoo.protocols import protocols

        assert set(read_recipe(name).card.protocols) <= set(protocols())

    def test_becomes_plain_data_and_the_same_recipe_again(self, name):
        recipe = read_recipe(name)
        mapping = yaml.safe_load(yaml.safe_dump(recipe.to_mapping()))
        assert mapping == recipe.to_mapping()
        again = parse_recipe(name, mapping)
        assert (again.model, again.data, again.train) == (recipe.model, recipe.data, recipe.train)

    def test_is_data_of_the_declared_types(self, name):
        """No value is rescued by a conversion: what the file says is what the field holds."""
        recipe = read_recipe(name)
        mapping = config.read_yaml(recipes.folder() / f"{name}.yaml")
        for part in ("model", "data", "train"):
            parsed = config.to_mapping(getattr(recipe, part))
            assert {key: parsed[key] for key in mapping[part]} == mapping[part]


def test_notes_are_of_presets_that_there_are():
    text = (recipes.folder().parent / "docs" / "notes.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert {name for title in titles for name in title.split(", ")} <= set(NAMES)
    assert "probabilistic_mnist" in titles


def test_what_decides_the_weights_is_in_the_mapping_defaults_included(path):
    mapping = read_recipe(path).to_mapping()
    assert list(mapping) == ["model", "data", "train"]
    assert mapping["model"] | {"name": "dynamic", "channels": 16, "num_iterations": 3} == mapping["model"]
    assert mapping["data"] == {
        "name": "mnist",
        "validation": 50,
        "pad": 0,
        "shift": 2,
        "turn": 0.0,
        "stretch": 0.0,
    }
    assert mapping["train"]["learning_rate"] == 0.001


def test_a_preset_and_its_file_are_the_same_recipe():
    assert read_recipe("dynamic_mnist") == read_recipe(recipes.folder() / "dynamic_mnist.yaml")


def test_overrides_reach_every_section(path):
    recipe = read_recipe(
        path, ["train.epochs=3", "model.routing=leaky", "data.shift=0", "card.title=Another"]
    )
    assert (recipe.train.epochs, recipe.model.routing, recipe.data.shift) == (3, "leaky", 0)
    assert (recipe.card.title, recipe.model.channels) == ("Another", 16)


def test_another_data_set_needs_only_its_name(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("model: {name: dynamic}\ndata: {name: mnist}\n", encoding="utf-8")
    recipe = read_recipe(path, ["data.name=fashion_mnist"])
    assert recipe.data.section_name == "fashion_mnist"
    assert recipe.data.shift == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.name=dynamik", r"model\.name: unknown model 'dynamik'; did you mean 'dynamic'\?"),
        ("data.name=mnits", r"data\.name: unknown data 'mnits'; did you mean '\w*mnist'\?"),
        ("model.chanels=3", r"model\.chanels: unknown key; did you mean 'channels'\?"),
        ("model.routing=dinamic", r"model\.routing: 'dinamic' is not allowed; did you mean 'dynamic'\?"),
        ("data.shifts=3", r"data\.shifts: unknown key; did you mean 'shift'\?"),
        ("data.pad=-1", r"data: pad must be at least 0\. Received: -1"),
        ("train.epochs=many", r"train\.epochs: expected int\. Received: 'many'"),
        ("train.seed=-1", r"train\.seed: must be in"),
        ("cart.title=a", r"cart: unknown section; did you mean 'card'\?"),
        ("card.protocols=[test_error]", r"card\.protocols: expected a mapping"),
    ],
)
def test_a_fault_is_named_with_its_file_and_key(path, override, message):
    with pytest.raises(ConfigError, match=rf"^tiny_mnist\.yaml: {message}"):
        read_recipe(path, [override])


@pytest.mark.parametrize("missing", ["model", "data"])
def test_model_and_data_are_needed(missing):
    mapping = yaml.safe_load(RECIPE)
    del mapping[missing]
    with pytest.raises(ConfigError, match=f"^{missing}: a mapping with the key 'name' is needed"):
        parse_recipe("tiny", mapping)


def test_an_unknown_preset_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"unknown preset 'dynamic_mnits'; did you mean 'dynamic_mnist'\?"):
        read_recipe("dynamic_mnits")


def test_a_folder_without_a_run_is_named_as_such(tmp_path):
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ConfigError, match=rf"{folder} is no preset and no folder of one or of a run"):
            read_recipe(str(folder))


def test_a_file_of_weights_is_no_preset(tmp_path):
    path = tmp_path / "mine.keras"
    path.touch()
    with pytest.raises(ConfigError, match=rf"Received the file {path}: keras\.saving\.load_model reads"):
        mapping_of(str(path))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such recipe file"):
        read_recipe(tmp_path / "nothing.yaml")


def test_recipes_build_a_model_that_fits_their_data(path):
    recipe = read_recipe(path)
    model = recipe.build()
    assert model.input.shape[1:] == recipe.data.image_shape
    assert model.output["scores"].shape[-1] == recipe.data.num_classes == 10
    assert recipe.build(3).output["scores"].shape[-1] == 3


@pytest.mark.parametrize("model", ["dynamic", "sparse", "vae", "scae"])
@pytest.mark.parametrize("data", [{"name": "eth80"}, {"name": "synthnorb"}])
def test_standardised_images_are_not_reconstructed(model, data):
    with pytest.raises(ConfigError, match=r"data\.standardise: .* reconstructs images in \[0, 1\]"):
        parse_recipe("a", {"model": {"name": model}, "data": data}).build()
    plain = {"model": {"name": "dynamic", "channels": 8, "primary_types": 2}}
    parse_recipe("a", plain | {"data": data | {"standardise": False, "jitter": "raw"}}).build()
    parse_recipe("a", {"model": plain["model"] | {"decoder": False}, "data": data}).build()


def test_the_package_and_its_lists_need_no_backend():
    code = """
import sys
import capszoo
assert capszoo.list_models("dynamic_*")
assert capszoo.describe("dynamic_mnist")
print(sorted({"keras", "tensorflow", "jax", "torch", "tensorflow_datasets"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
