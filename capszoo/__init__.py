"""capszoo: the model zoo for capsule networks.

    import capszoo
    capszoo.list_models("*mnist*", routing="dynamic", pretrained=True)
    model = capszoo.load("dynamic_mnist")
    model.predict(images)              # {"scores": [B, 10], "poses": [B, 10, 16], "reconstruction": ...}

Importing the package imports neither Keras nor a backend; making a model does.
"""

from capszoo.zoo.listing import describe, list_models
from capszoo.zoo.loading import create, load
from capszoo.zoo.presets import get_preset

__all__ = ["create", "describe", "evaluate", "export", "get_preset", "list_models", "load"]


def __getattr__(name):
    # These two need Keras, so they come when they are asked for.
    if name == "evaluate":
        from capszoo.protocols import evaluate

        return evaluate
    if name == "export":
        from capszoo.exporting import export

        return export
    raise AttributeError(f"module 'capszoo' has no attribute {name!r}")
