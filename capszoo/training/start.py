"""What weights a training begins with."""

import dataclasses
from pathlib import Path

from capszoo.training.weight_files import given_weights, start_weights


@dataclasses.dataclass(frozen=True)
class Start:
    """A file of weights, and what they know.

    where:
      path: of the file.
      class_names: of the classes that its head was trained on; None where that is not known or does not matter.
    """

    path: Path
    class_names: tuple[str, ...] | None = None

    def give(self, recipe, model) -> list[str]:
        """Gives `model`, of `recipe`, every weight that fits; returns the paths of those that stay random.

        A head that was trained on other classes is none of them.
        """
        return start_weights(model, self.path, self._head(recipe))

    def given(self, recipe, model) -> list[str]:
        """The paths of the weights that `give` gives, by the header of the file."""
        return list(given_weights(model, self.path, self._head(recipe)))

    def _head(self, recipe):
        return () if self.class_names in (None, tuple(recipe.data.class_names)) else recipe.model.head


def start_of_file(text: str) -> Start:
    """The `Start` of a file of weights."""
    return Start(Path(text))
