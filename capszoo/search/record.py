"""What a search leaves behind in its folder, and what of it a card keeps."""

import dataclasses
import json
from pathlib import Path

from capszoo.config import ConfigError, read_yaml
from capszoo.search.best_recipe import best_recipe
from capszoo.search.drawing import draw
from capszoo.search.leaderboard import to_markdown
from capszoo.training.files import write_figure, write_text
from capszoo.training.recipe import dataset_of


@dataclasses.dataclass(frozen=True)
class SearchRecord:
    """What a search for the recipe's values has tried.

    where:
      oracle: who proposed values; epochs, images: what a trial was trained on, None for all images.
      leaderboard: the trials, best first, see `capszoo.search.leaderboard`.
    """

    oracle: str
    epochs: int
    images: int | None
    leaderboard: tuple[dict[str, object], ...]

    def to_markdown(self) -> str:
        """A sentence and the table of the trials."""
        images = f"{self.images:,}" if self.images else "all"
        cost = f"each at most {self.epochs} x {images} training images long"
        return (
            f"{self.oracle.capitalize()} search, {len(self.leaderboard)} trials, {cost}.\n\n"
            + to_markdown(self.leaderboard)
        )


def write(rows, recipe, directory: Path):
    """Writes `leaderboard.json`, `leaderboard.md` and, where a trial was completed, `best.yaml` and `search.png`."""
    write_text(directory / "leaderboard.json", json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    write_text(directory / "leaderboard.md", to_markdown(rows))
    if rows and rows[0]["status"] == "completed":
        write_text(directory / "best.yaml", best_recipe(rows, recipe))
        write_figure(draw(rows, recipe.search), directory / "search.png", dpi=120)


def read(directory: Path, recipe) -> SearchRecord:
    """What the search in a folder has found, for the card of `recipe`.

    Errors: `ConfigError` where there is no search or not one completed trial, and for a search among networks of
    another architecture or on another data set.
    """
    path = directory / "leaderboard.json"
    try:
        rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not readable: {error}") from error
    if not rows or rows[0]["status"] != "completed":
        raise ConfigError(f"the folder of a search with a completed trial is needed. Received: {directory}")
    searched = read_yaml(directory / "search.yaml")
    of, wanted = (
        (parts["model"]["name"], dataset_of(parts["data"])) for parts in (searched, recipe.to_mapping())
    )
    if of != wanted:
        raise ConfigError(f"{directory} is a search of {' on '.join(of)}. Received: {' on '.join(wanted)}")
    search = searched["search"]
    images = search["images"] or searched["train"].get("images")
    return SearchRecord(search["oracle"], search["epochs"], images, tuple(rows))
