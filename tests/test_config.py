"""Recipes are data read strictly: what is not understood is refused, by name, and nothing in them is ever run."""

import dataclasses
import time
import typing

import pytest

from capszoo import config
from capszoo.config import ConfigError, apply_overrides, parse, read_yaml, section
from capszoo.training.config import TrainConfig


@dataclasses.dataclass(frozen=True)
class Inner:
    depth: int = 1


@section("toy", "kitchen")
@dataclasses.dataclass(frozen=True)
class Kitchen:
    """One field of each kind that the zoo's dataclasses have."""

    count: int = 1
    share: float = 0.5
    flag: bool = False
    title: str = "a"
    limit: float | None = None
    mode: typing.Literal["fast", "slow"] = "fast"
    instance: typing.Literal[4, 6] | None = 4
    names: tuple[str, ...] = ()
    size: tuple[int, int] = (1, 2)
    numbers: dict[str, float | None] = dataclasses.field(default_factory=dict)
    inner: Inner = Inner()


@section("toy", "pantry")
@dataclasses.dataclass(frozen=True)
class Pantry:
    shelves: int


@pytest.fixture
def write(tmp_path):
    """`write(text)`: the path of a YAML file with that text."""

    def write(text):
        path = tmp_path / "recipe.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_an_unknown_key_is_refused_with_the_nearest_valid_one():
    with pytest.raises(
        ConfigError, match=r"train\.batchsize: unknown key; did you mean 'batch_size'\?"
    ) as error:
        parse(TrainConfig, {"batchsize": 3}, "train")
    for field in dataclasses.fields(TrainConfig):
        assert field.name in str(error.value)


def test_a_key_that_resembles_nothing_is_refused_without_a_guess():
    with pytest.raises(ConfigError, match=r"^train\.zzz: unknown key\. Valid: average, "):
        parse(TrainConfig, {"zzz": 3}, "train")


def test_an_unknown_name_is_refused_with_the_nearest_valid_one():
    with pytest.raises(ConfigError, match=r"toy\.name: unknown toy 'kitchn'; did you mean 'kitchen'\?"):
        config.parse_section("toy", {"name": "kitchn"})


def test_the_nearest_name_is_found_whatever_its_case():
    assert "did you mean 'Kitchen'" in config.nearest("KITCHN", ["Kitchen", "garden"])


@pytest.mark.parametrize("mapping", [None, "kitchen", ["kitchen"], {}, {"count": 2}])
def test_a_section_must_say_its_name(mapping):
    with pytest.raises(ConfigError, match=r"toy: a mapping with the key 'name' is needed\. Received"):
        config.parse_section("toy", mapping)


@pytest.mark.parametrize("name", [None, 3, ["kitchen"], {"kitchen": 1}])
def test_a_name_must_be_text(name):
    with pytest.raises(ConfigError, match=r"toy\.name: unknown toy"):
        config.parse_section("toy", {"name": name})


def test_a_field_without_default_must_be_given():
    with pytest.raises(ConfigError, match=r"toy: .*shelves"):
        config.parse_section("toy", {"name": "pantry"})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("count", 1.0, "int"),
        ("count", "1", "int"),
        ("count", True, "int"),
        ("count", None, "int"),
        ("share", "much", "float"),
        ("share", True, "float"),
        ("share", None, "float"),
        ("share", [0.5], "float"),
        ("flag", 1, "bool"),
        ("flag", "true", "bool"),
        ("title", 3, "str"),
        ("limit", "low", "float"),
        ("limit", False, "float"),
        ("names", "a", "a list"),
        ("names", ["a", 3], "str"),
        ("size", [1], "a list of 2"),
        ("size", [1, 2, 3], "a list of 2"),
        ("size", [1, "2"], "int"),
        ("numbers", [1], "a mapping"),
        ("numbers", {"a": "b"}, "float"),
        ("numbers", {3: 1.0}, "str"),
        ("inner", 3, "mapping"),
    ],
)
def test_a_wrong_type_is_refused_with_what_was_expected_and_received(key, value, expected):
    with pytest.raises(ConfigError, match=rf"toy\.{key}.*{expected}.*Received: "):
        config.parse_section("toy", {"name": "kitchen", key: value})


@pytest.mark.parametrize(
    ("key", "value", "valid"),
    [
        ("mode", "fats", "did you mean 'fast'"),
        ("mode", None, "slow"),
        ("mode", ["fast"], "slow"),
        ("instance", 5, "6"),
        ("instance", 4.0, "6"),
    ],
)
def test_a_value_outside_of_the_choices_is_refused_with_the_choices(key, value, valid):
    with pytest.raises(ConfigError, match=rf"toy\.{key}: .* is not allowed.*{valid}"):
        config.parse_section("toy", {"name": "kitchen", key: value})


def test_an_unknown_key_is_found_at_any_depth():
    with pytest.raises(ConfigError, match=r"toy\.inner\.dept: unknown key; did you mean 'depth'"):
        config.parse_section("toy", {"name": "kitchen", "inner": {"dept": 2}})


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("share", "1e-3", 0.001),  # text in YAML 1.1
        ("share", "1.0e-3", 0.001),
        ("share", "2", 2.0),
        ("limit", "1e-3", 0.001),
        ("limit", "null", None),
        ("limit", "3", 3.0),
        ("mode", "slow", "slow"),
        ("instance", "6", 6),
        ("instance", "null", None),
        ("names", "[a, b]", ("a", "b")),
        ("size", "[3, 4]", (3, 4)),
        ("numbers", "{a: 1, b: null}", {"a": 1.0, "b": None}),
        ("inner", "{depth: 3}", Inner(3)),
    ],
)
def test_values_arrive_as_the_type_of_their_field(write, key, text, value):
    parsed = config.parse_section("toy", read_yaml(write(f"name: kitchen\n{key}: {text}")))
    assert parsed == dataclasses.replace(Kitchen(), **{key: value})
    assert type(getattr(parsed, key)) is type(value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epochs", 0),
        ("batch_size", -1),
        ("decay_steps", 0),
        ("checkpoint_steps", 0),
        ("seed", -1),
        ("seed", 2**32),
        ("learning_rate", 0.0),
        ("learning_rate", -1e-3),
        ("learning_rate", "nan"),
        ("learning_rate", "inf"),
        ("decay_rate", 0.0),
        ("minimum_learning_rate", -1.0),
        ("minimum_learning_rate", "nan"),
        ("gradient_clip", 0.0),
        ("gradient_clip", "nan"),
        ("gradient_clip", "inf"),
        ("gradient_clip", 1e31),
        ("average", 0.9999999),
        ("images", 0),
        ("pretrained_rate", 0.0),
        ("pretrained_rate", 1.5),
        ("pretrained_rate", "nan"),
        ("precision", "float17"),
    ],
)
def test_an_illegal_training_value_names_its_key(key, value):
    with pytest.raises(ConfigError, match=rf"^train\.{key}: "):
        parse(TrainConfig, {key: value}, "train")


def test_what_a_dataclass_refuses_names_its_section():
    import capszoo.data  # noqa: F401 - registers the data sets

    with pytest.raises(ConfigError, match=r"data: shift must be at least 0\. Received: -1"):
        config.parse_section("data", {"name": "mnist", "shift": -1})


@pytest.mark.parametrize(
    "value", [Kitchen(), Kitchen(3, 0.25, True, "b", 1.0, "slow", None, ("a",), (3, 4), {"a": None})]
)
def test_a_mapping_and_back_is_the_same(value):
    mapping = config.to_mapping(value)
    del mapping["inner"]  # only cards nest dataclasses, and those have a file format of their own
    assert config.parse_section("toy", mapping) == value


def test_only_frozen_dataclasses_can_be_sections():
    @dataclasses.dataclass
    class Soft:
        pass

    for cls in (Soft, int):
        with pytest.raises(TypeError, match="frozen dataclass"):
            section("toy", "soft")(cls)
    assert "soft" not in config.sections("toy")


@pytest.mark.parametrize(
    "text", ["train: {epochs: 1, epochs: 2}", "data: {a: 1}\ndata: {a: 2}", "a: {b: {c: 1, d: 2, c: 3}}"]
)
def test_a_key_given_twice_is_refused_with_file_and_line(write, text):
    path = write("# a comment\n" + text)
    with pytest.raises(ConfigError, match=r"the key '(epochs|data|c)' is given twice .*line 2") as error:
        read_yaml(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "\tx: 1", "a: \x00"])
def test_broken_yaml_names_its_file(write, text):
    path = write(text)
    with pytest.raises(ConfigError, match="not valid YAML") as error:
        read_yaml(path)
    assert str(path) in str(error.value)


def test_a_file_that_is_no_text_names_itself(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match=r"recipe\.yaml: not valid YAML"):
        read_yaml(path)


@pytest.mark.parametrize("text", ["", "[1, 2]", "hello", "3"])
def test_a_file_without_sections_is_refused(write, text):
    with pytest.raises(ConfigError, match="a mapping of sections is needed"):
        read_yaml(write(text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.yaml: no such recipe file"):
        read_yaml(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    "call",
    [
        "!!python/object/apply:os.system ['touch {trace}']",
        "!!python/object/new:os.mkdir ['{trace}']",
        "!!python/name:os.system",
        "!!python/module:this",
    ],
)
def test_yaml_cannot_run_code(write, tmp_path, call):
    trace = tmp_path / "trace"
    text = call.format(trace=trace)
    with pytest.raises(ConfigError, match="not valid YAML"):
        read_yaml(write(f"model: {text}"))
    with pytest.raises(ConfigError, match="not valid YAML"):
        apply_overrides({}, [f"model.name={text}"])
    assert not trace.exists()


def test_overrides_are_laid_over_a_copy():
    before = {"train": {"epochs": 1, "seed": 4}, "model": {"name": "dynamic"}}
    after = apply_overrides(
        before, ["train.epochs=3", "train.xla=true", "data.name=mnist", "train.gradient_clip=null"]
    )
    assert after == {
        "train": {"epochs": 3, "seed": 4, "xla": True, "gradient_clip": None},
        "model": {"name": "dynamic"},
        "data": {"name": "mnist"},
    }
    assert before == {"train": {"epochs": 1, "seed": 4}, "model": {"name": "dynamic"}}


def test_the_last_of_equal_overrides_counts():
    assert apply_overrides({}, ["train.epochs=3", "train.epochs=4"]) == {"train": {"epochs": 4}}


@pytest.mark.parametrize("text", ["1e-3", "0.001"])
def test_an_override_can_be_written_as_people_write_numbers(text):
    mapping = apply_overrides({}, [f"train.learning_rate={text}"])
    assert parse(TrainConfig, mapping["train"], "train").learning_rate == 0.001


@pytest.mark.parametrize("override", ["train.epochs", "epochs=3", "=3", "train.epochs:3"])
def test_an_override_of_another_form_is_refused(override):
    with pytest.raises(ConfigError, match=r"written section\.key=value\. Received: "):
        apply_overrides({}, [override])


def test_one_text_instead_of_several_overrides_is_refused():
    with pytest.raises(ConfigError, match=r"in a list\. Received: the text 'train\.epochs=1'"):
        apply_overrides({}, "train.epochs=1")


@pytest.mark.parametrize("text", ["[1", "{a: 1, a: 2}", "a: b: c"])
def test_an_override_with_a_broken_value_is_refused(text):
    with pytest.raises(ConfigError):
        apply_overrides({}, [f"train.epochs={text}"])


def test_an_override_goes_as_deep_as_its_dots():
    before = {"stages": {"parts": {"train": {"epochs": 3, "seed": 1}}}}
    after = apply_overrides(before, ["stages.parts.train.epochs=4", "stages.objects.train.epochs=5"])
    assert after["stages"] == {
        "parts": {"train": {"epochs": 4, "seed": 1}},
        "objects": {"train": {"epochs": 5}},
    }
    assert before["stages"]["parts"]["train"]["epochs"] == 3


def test_an_override_cannot_go_into_what_has_no_keys():
    with pytest.raises(ConfigError, match="train: cannot be overridden by key"):
        apply_overrides({"train": 3}, ["train.epochs=3"])


def test_an_overridden_unknown_key_is_refused_like_any_other():
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        parse(TrainConfig, apply_overrides({}, ["train.epoch=3"])["train"], "train")


def test_an_alias_is_refused_before_it_unfolds(tmp_path):
    path = tmp_path / "bomb.yaml"
    levels = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]\n" for i in range(1, 10))
    path.write_text("x0: &x0 [lol]\n" + levels, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bomb\.yaml: line 2: aliases are not allowed"):
        read_yaml(path)


@pytest.mark.parametrize("brackets", [17, 1500, 100_000])
def test_values_nested_too_deeply_are_refused(tmp_path, brackets):
    path = tmp_path / "deep.yaml"
    path.write_text("model: " + "[" * brackets, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"deep\.yaml: line 1: nested deeper than 16 levels"):
        read_yaml(path)
    with pytest.raises(ConfigError, match="nested deeper"):
        apply_overrides({}, ["model.x=" + "[" * brackets])


def test_a_file_much_longer_than_a_recipe_is_not_read(tmp_path):
    path = tmp_path / "long.yaml"
    with path.open("wb") as file:
        file.truncate(10**12)  # of which nothing lies on the disk
    with pytest.raises(ConfigError, match="at most 262,144 bytes"):
        read_yaml(path)


@pytest.mark.parametrize(
    "value", ["9" * 10_000, "2001-99-99", "!!bool x", "!!timestamp x", "!!int ''", "!!float ''"]
)
def test_a_value_that_the_parser_cannot_hold_is_refused_with_the_file(tmp_path, value):
    path = tmp_path / "odd.yaml"
    path.write_text(f"train: {value}", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"odd\.yaml: not valid YAML"):
        read_yaml(path)


def test_many_keys_are_read_in_a_moment(tmp_path):
    path = tmp_path / "many.yaml"
    path.write_text("".join(f"k{i}: 1\n" for i in range(25_000)), encoding="utf-8")
    started = time.process_time()
    assert len(read_yaml(path)) == 25_000
    assert time.process_time() - started < 30


def test_integers_have_64_bits():
    assert parse(TrainConfig, {"decay_steps": 2**62}).decay_steps == 2**62
    for key in ("decay_steps", "images"):
        with pytest.raises(ConfigError, match=rf"train\.{key}: expected an integer of 64 bits"):
            parse(TrainConfig, {key: 2**63}, "train")


@pytest.mark.parametrize("key", ["learning_rate", "gradient_clip"])
def test_nan_is_no_number_where_there_may_be_none_either(key):
    with pytest.raises(ConfigError, match=f"train.{key}: expected float. Received: nan"):
        parse(TrainConfig, {key: float("nan")}, "train")
