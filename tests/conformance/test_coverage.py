"""Nothing public escapes the properties of this folder."""

import importlib
import inspect
import pkgutil

import keras
import pytest
from conformance.goldens import LAYERS, MODELS, PRESETS, ROUTINGS

import capszoo.layers
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


def test_every_public_layer_is_exported_by_its_package():
    for package in (capszoo.routing, capszoo.layers):
        missing = {layer.__name__ for layer in public_layers(package)} - set(package.__all__)
        assert not missing, f"{package.__name__}.__all__ lacks {missing}"
