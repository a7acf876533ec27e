"""Where the weights lie that `train.start_from` names."""

from pathlib import Path

from capszoo.training.folder import BEST
from capszoo.training.start import Start
from capszoo.zoo.locating import WEIGHTS, WeightsNotFound, find_file
from capszoo.zoo.presets import get_preset


def find_start(name: str) -> Start:
    """The weights of a file, of a run in a folder, or of a preset, with the classes and the network of their training.

    Errors: `ConfigError` for an unknown preset; `WeightsNotFound` for one without weights.
    """
    if Path(name).is_file() or name.endswith(".safetensors"):
        return Start(Path(name))
    preset = get_preset(name)
    if preset.run is None and preset.card is None:
        raise WeightsNotFound(f"train.start_from: no weights are published for {name!r}.")
    path = preset.run / BEST if preset.run else find_file(preset, WEIGHTS)
    recipe = preset.recipe
    return Start(path, tuple(recipe.data.class_names), recipe.model)
