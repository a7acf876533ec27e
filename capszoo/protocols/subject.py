"""What a protocol that looks at several models is given."""

import dataclasses

from capszoo.config import ConfigError


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model under examination.

    where:
      name: what it is called in results: a preset or the folder of a run.
      recipe: its `capszoo.zoo.recipes.Recipe`.
      model: an inference model of that recipe.
      step: training steps behind its weights; None where that is not known.
    """

    name: str
    recipe: object
    model: object
    step: int | None = None


def require_names(subjects):
    """Errors: `ConfigError` for two subjects of one name, where a report has its results by name."""
    names = [subject.name for subject in subjects]
    if len(set(names)) < len(names):
        raise ConfigError(f"each model needs a name of its own. Received: {', '.join(names)}")
