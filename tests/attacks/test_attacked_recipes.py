"""Recipes: one line that names the key or the file, and no code, no hang, no gigabytes."""

import pytest
from attacks.damage import damaged
from tiny import RECIPE

from capszoo.config import ConfigError
from capszoo.models.size import check_size
from capszoo.zoo.recipes import read_recipe

NUMBERS = [
    "-1",
    "0",
    "1e3",
    "1000000000",
    str(2**63),
    str(10**400),
    ".nan",
    ".inf",
    "true",
    "null",
    "[]",
    "{}",
    "x",
]

# By name only: many inputs take minutes.
pytestmark = [pytest.mark.attack, pytest.mark.slow]


def test_damaged_files(attacks, tmp_path):
    path = tmp_path / "tiny_mnist.yaml"
    for what, copy in damaged(RECIPE.encode(), attacks.rng, 400):
        path.write_bytes(copy)
        # What is still a recipe is one: a digit more or less.
        attacks(
            what, lambda: read_recipe(path), ConfigError, harmless=lambda recipe: recipe.train.epochs >= 1
        )


def test_bombs(attacks, tmp_path):
    path = tmp_path / "bomb.yaml"
    aliases = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
    )
    merge = "model: &m {name: dynamic, <<: *m}\ndata: {name: mnist}\n"
    texts = {
        "aliases": aliases,
        "merge of itself": merge,
        "brackets": "model: " + "[" * 10**5,
        "braces": "model: " + "{a: " * 50_000,
        "long key": "a" * 200_000 + ": 1",
        "many keys": "".join(f"k{i}: 1\n" for i in range(30_000)),
        "python": "model: !!python/object/apply:os.system ['true']",
        "binary": "\x00\x01\x02",
        "huge number": "train: {epochs: " + "9" * 10_000 + "}",
        "list": "- 1",
        "empty": "",
        "timestamp": "model: 2001-99-99",
    }
    for what, text in texts.items():
        path.write_text(text, encoding="utf-8")
        attacks(what, lambda: read_recipe(path), ConfigError)


@pytest.mark.parametrize(
    "name", ["dynamic_mnist", "matrix_em_smallnorb", "probabilistic_mnist", "cnn_smallnorb"]
)
def test_values(attacks, name):
    def checked(override):
        recipe = read_recipe(name, [override])
        check_size(
            recipe.model, recipe.data.image_shape, recipe.data.num_classes, recipe.data.labels_per_image
        )

    for part, values in read_recipe(name).to_mapping().items():
        for key in values:
            for text in NUMBERS:
                # There are keys that may have any of the others, and a stage may change nothing.
                never = text in (".nan", "{}", NUMBERS[5], NUMBERS[6])
                never &= (part, text) != ("stages", "{}")
                override = f"{part}.{key}={text}"
                attacks(
                    override,
                    lambda override=override: checked(override),
                    ConfigError,
                    harmless=lambda _, never=never: not never,
                )
