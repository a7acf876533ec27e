"""capszoo: the model zoo for capsule networks.

    >>> import capszoo
    >>> capszoo.list_models("*mnist", routing="em", pretrained=True)
    ['consensus_em_mnist', 'matrix_em_mnist']
    >>> model = capszoo.load("dynamic_mnist")            # a keras.Model; weights come with the package
    >>> images = model.preprocess(picture)               # [B, 28, 28, 1], bytes or numbers from 0 to 1
    >>> {name: output.shape for name, output in sorted(model.predict(images, verbose=0).items())}
    {'poses': (1, 10, 16), 'reconstruction': (1, 28, 28, 1), 'scores': (1, 10)}

Importing the package imports neither Keras nor a backend; making a model does.
"""

from typing import TYPE_CHECKING

from capszoo.zoo.listing import describe, list_models
from capszoo.zoo.loading import create, load
from capszoo.zoo.presets import get_preset
from capszoo.zoo.reloading import watch

if TYPE_CHECKING:
    from capszoo.exporting import export
    from capszoo.protocols import evaluate
    from capszoo.zoo.finetuning import finetune

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "create",
    "describe",
    "evaluate",
    "export",
    "finetune",
    "get_preset",
    "list_models",
    "load",
]

# `keras.saving.load_model` then knows what the models of this package are made of.
watch()


def __dir__():
    return sorted({*globals(), *__all__})


def __getattr__(name: str):
    # These need Keras, so they come when they are asked for.
    if name == "evaluate":
        from capszoo.protocols import evaluate

        return evaluate
    if name == "finetune":
        from capszoo.zoo.finetuning import finetune

        return finetune
    if name == "export":
        from capszoo.exporting import export

        return export
    raise AttributeError(f"module 'capszoo' has no attribute {name!r}")
