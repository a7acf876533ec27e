"""A network that no machine could hold is refused before any of it is made."""

import random
import resource

import keras
import pytest

from capszoo.config import ConfigError
from capszoo.models import DynamicCapsNet
from capszoo.models.size import MAX_PARAMETERS, check_size
from capszoo.training.config import TrainConfig
from capszoo.training.health import check_memory
from capszoo.zoo import recipes
from capszoo.zoo.recipes import read_recipe


@pytest.mark.parametrize(
    ("preset", "override", "key"),
    [
        ("matrix_em_smallnorb", "model.channels=1000000000", "model.channels"),
        ("matrix_em_smallnorb", "model.channels=-1", "model.channels"),
        ("matrix_em_smallnorb", "model.conv1_types=0", "model.conv1_types"),
        ("kernel_mnist", "model.alpha=.nan", "model.alpha"),
        ("matrix_em_smallnorb", "model.num_iterations=1000000000", "model.num_iterations"),
        ("dynamic_mnist", "model.primary_types=65536", "model.primary_types"),
        ("kernel_mnist", "model.components=[4, 4, 1000000000]", "model.components"),
        ("lstm_mnist", "model.compatibility=[[], [1000000000, 32], [64, 64]]", "model.compatibility"),
        ("lstm_mnist", f"model.compatibility=[[], {[1] * 1000}, []]", "model.compatibility"),
        ("probabilistic_mnist", "model.blocks=1000000000", "model.blocks"),
        ("dynamic_mnist", "data.pad=1000000000", "data: pad"),
        ("dynamic_multimnist", "data.pairs_per_image=1000000000", "data: pairs_per_image"),
        ("matrix_em_smallnorb", "data.size=1000000000", "data: size"),
        ("matrix_em_smallnorb", "train.epochs=1000000000", "train.epochs"),
    ],
)
def test_an_absurd_number_is_refused_by_its_key(preset, override, key):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match=key) as refused:
        read_recipe(preset, [override]).build()
    assert "\n" not in str(refused.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 2**19, "KiB"


@pytest.mark.parametrize("name", recipes.names())
def test_no_published_network_needs_to_be_counted(name, monkeypatch):
    """Counting takes as long as building: `load` must not pay for it."""
    monkeypatch.setattr("capszoo.models.size._count", lambda *_: pytest.fail("counted"))
    recipe = read_recipe(name)
    check_size(recipe.model, recipe.data.image_shape, recipe.data.num_classes, recipe.data.labels_per_image)


def test_a_network_much_larger_than_the_published_ones_is_built():
    large = DynamicCapsNet(channels=1024, primary_types=64, class_dim=32)
    check_size(large, (40, 40, 3), 100)


def test_the_limit_is_one_of_parameters():
    """Widths that are each allowed, and not together."""
    with pytest.raises(
        ConfigError, match=r"would have [\d,]+ parameters, more than 1,000,000,000.*model\.channels"
    ):
        check_size(DynamicCapsNet(channels=20_000, primary_types=2000), (28, 28, 1), 10)
    assert MAX_PARAMETERS == 10**9


def test_so_is_a_number_of_classes():
    with pytest.raises(ConfigError, match=r"num_classes \(1,000,000,000\)"):
        read_recipe("dynamic_mnist").build(num_classes=10**9)


def test_counting_leaves_nothing_behind():
    """Neither numbers drawn, which would change initial weights, nor variables that Keras would still fill."""
    random.seed(3)
    expected = random.random()
    random.seed(3)
    with pytest.raises(ConfigError, match="parameters"):
        check_size(DynamicCapsNet(channels=60_000, primary_types=4000), (28, 28, 1), 10)
    assert random.random() == expected
    # A variable of 300 GB would be filled here.
    with keras.StatelessScope():
        pass


def test_a_batch_that_memory_cannot_hold_is_refused():
    model = keras.Sequential([keras.Input((100, 100, 1)), keras.layers.Conv2D(100, 3, name="conv")])
    check_memory(model, 1)
    with pytest.raises(
        ConfigError, match=r"train\.batch_size: a batch of 10,000,000 takes more than 3\d,\d+ GB"
    ):
        check_memory(model, 10_000_000)


def test_epochs_have_a_limit_far_away():
    assert TrainConfig(epochs=100_000).epochs == 100_000
