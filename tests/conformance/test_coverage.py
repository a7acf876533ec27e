"""Nothing public escapes the properties of this folder."""

import importlib
import inspect
import pkgutil

import keras
import pytest
from conformance.goldens import LAYERS, MODELS, PRESETS, ROUTINGS

import capszoo.layers
import capszoo.losses
import capszoo.models
import capszoo.routing
from capszoo import config
from capszoo.zoo import recipes


def public_layers(package):
    """Keras layers that the modules of a package define under public names."""
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return {
        member
        for module in [package, *modules]
        for name, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, keras.layers.Layer)
        and member.__module__.startswith(f"{package.__name__}.")
        and not name.startswith("_")
    }


def test_every_public_routing_has_a_golden():
    missing = (
        public_layers(capszoo.routing)
        - {capszoo.routing.Routing}
        - {type(golden.create()) for golden in ROUTINGS}
    )
    assert not missing, f"add an entry to ROUTINGS of conformance/goldens.py for {missing}"


def test_every_public_layer_has_a_golden():
    missing = public_layers(capszoo.layers) - {type(golden.create()) for golden in LAYERS}
    assert not missing, f"add an entry to LAYERS of conformance/goldens.py for {missing}"


def test_every_registered_architecture_has_a_golden():
    missing = set(config.sections("model").values()) - {type(golden.architecture) for golden in MODELS}
    assert not missing, f"add an entry to MODELS of conformance/goldens.py for {missing}"


def test_every_preset_has_a_golden():
    missing = set(recipes.names()) - set(PRESETS)
    assert not missing, f"add the number of parameters to PRESETS of conformance/goldens.py for {missing}"


@pytest.mark.parametrize("package", [capszoo.routing, capszoo.layers])
def test_every_public_layer_can_be_saved_under_the_name_of_the_zoo(package):
    for layer in public_layers(package) - {capszoo.routing.Routing}:
        assert keras.saving.get_registered_name(layer) == f"capszoo>{layer.__name__}"


def options(cls):
    """The names of what a class of Keras objects is made with, but for what all of them have."""
    parameters = inspect.signature(cls).parameters.values()
    return {each.name for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD} - {"name", "dtype"}


LOSSES = [member for name, member in vars(capszoo.losses).items() if inspect.isclass(member)]


@pytest.mark.parametrize(
    "made",
    [pytest.param(golden.create, id=golden.name) for golden in [*ROUTINGS, *LAYERS]]
    + [pytest.param(loss, id=loss.__name__) for loss in LOSSES],
)
def test_every_option_is_in_the_configuration(made):
    """Where a default is lost with it nothing else shows."""
    made = made()
    missing = options(type(made)) - made.get_config().keys()
    assert not missing


def test_every_public_layer_is_exported_by_its_package():
    for package in (capszoo.routing, capszoo.layers):
        missing = {layer.__name__ for layer in public_layers(package)} - set(package.__all__)
        assert not missing, f"{package.__name__}.__all__ lacks {missing}"
