"""What weights a training begins with."""

import dataclasses
from pathlib import Path

from capszoo import config
from capszoo.training.weight_files import given_weights, start_weights


@dataclasses.dataclass(frozen=True)
class Start:
    """A file of weights, and what they know.

    where:
      path: of the file.
      class_names: of the classes that its head was trained on; None where that is not known or does not matter.
      model: the architecture that it was trained in; None where that is not known or is the same.
    """

    path: Path
    class_names: tuple[str, ...] | None = None
    model: object | None = None

    def give(self, recipe, model) -> list[str]:
        """Gives `model`, of `recipe`, every weight that fits; returns the paths of those that stay random.

        A head that was trained on other classes is none of them.
        """
        return start_weights(model, self.path, self._head(recipe))

    def given(self, recipe, model) -> list[str]:
        """The paths of the weights that `give` gives, by the header of the file."""
        return list(given_weights(model, self.path, self._head(recipe)))

    def differences(self, recipe) -> list[str]:
        """In words, what `recipe` has otherwise in its model than the network in which the weights were trained."""
        before = config.to_mapping(self.model) if self.model else {}
        after = config.to_mapping(recipe.model)
        return [
            f"model.{key} {before[key]!r} -> {value!r}"
            for key, value in after.items()
            if key in before and before[key] != value
        ]

    def _head(self, recipe):
        return () if self.class_names in (None, tuple(recipe.data.class_names)) else recipe.model.head


def start_of_file(text: str) -> Start:
    """The `Start` of a file of weights."""
    return Start(Path(text))
