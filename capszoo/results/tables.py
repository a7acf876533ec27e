"""Tables of the papers as data: one YAML file per paper, of the zoo in `zoo_configs/tables/`, or of a user."""

import dataclasses
import math
from pathlib import Path

from capszoo import config
from capszoo.config import ConfigError, nearest
from capszoo.protocols import NumberProtocol, get_protocol
from capszoo.zoo import recipes


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number of a table.

    where:
      recipe: a preset, or a recipe file beside that of the table; "" for a number that is only quoted, since nothing
        here makes it.
      overrides: `section.key=value` laid over the recipe. Without any the cell is the preset itself: its published
        weights, where there are some.
      protocol: what measures it, one that gives a number.
      paper: the paper's value, in the protocol's unit: a share of images for errors; None where it has none.
      seeds: of the trainings behind the number.
      hours: what one training and its measurement cost on two CPU cores, estimated; see `Results.hours`.
      stops_at: another cell of the table, by whose number, of the same seed, the training is ended: at the first epoch
        whose test error is not larger. That number must be there before.
      note: what is to be said of it.
    """

    recipe: str = ""
    overrides: tuple[str, ...] = ()
    protocol: str = "test_error"
    paper: float | None = None
    seeds: tuple[int, ...] = (0,)
    hours: float = 0.0
    stops_at: str = ""
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells by their names in the paper.

    where:
      title: where the paper has it, and what it shows.
      note: how ours differs.
      overrides: laid over the recipe of every cell, before its own; such as another data set.
    """

    title: str
    cells: dict[str, Cell]
    note: str = ""
    overrides: tuple[str, ...] = ()

    def __post_init__(self):
        for name, cell in self.cells.items():
            self._require_value(name, cell)
            if not cell.seeds or len(set(cell.seeds)) < len(cell.seeds):
                raise ConfigError(
                    f"{name}.seeds: one or more different seeds are needed. Received: {list(cell.seeds)}"
                )
            if min(cell.seeds) < 0:
                raise ConfigError(f"{name}.seeds: seeds from 0 on are needed. Received: {list(cell.seeds)}")
            if not 0 <= cell.hours < math.inf:
                raise ConfigError(f"{name}.hours: a number from 0 on is needed. Received: {cell.hours}")
            if any(
                override.partition("=")[0].strip() == "train.seed"
                for override in (*self.overrides, *cell.overrides)
            ):
                raise ConfigError(f"{name}.overrides: a training's seed is one of `seeds`, not train.seed.")
            if cell.stops_at:
                self._require_end(name, cell)
            if not cell.recipe and (cell.overrides or cell.stops_at or cell.hours):
                raise ConfigError(f"{name}: a cell without recipe is only quoted. Received: {cell}")

    @staticmethod
    def _require_value(name, cell):
        """Errors: `ConfigError` unless the protocol is one that gives a number, and the paper's value may be one."""
        try:
            protocol = get_protocol(cell.protocol)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error
        if not isinstance(protocol, NumberProtocol):
            raise ConfigError(f"{name}.protocol: {cell.protocol!r} gives a report, and a cell has a number.")
        if cell.paper is not None and not protocol.unit and not 0 <= cell.paper <= 1:
            raise ConfigError(f"{name}.paper: a share, from 0 to 1, is needed. Received: {cell.paper}")

    def _require_end(self, name, cell):
        """Errors: `ConfigError` unless the cell whose number ends a training is there before it, with all its seeds."""
        if cell.stops_at not in self.cells:
            raise ConfigError(f"{name}.stops_at: unknown cell{nearest(cell.stops_at, self.cells)}")
        end = self.cells[cell.stops_at]
        if not end.recipe or end.stops_at or not set(cell.seeds) <= set(end.seeds):
            raise ConfigError(
                f"{name}.stops_at: a cell with a recipe, with the same seeds and without an end of its own is needed. "
                f"Received: {cell.stops_at!r}"
            )
        if unit := get_protocol(end.protocol).unit:
            raise ConfigError(
                f"{name}.stops_at: a cell whose number is a share of wrong images is needed. "
                f"Received: {cell.stops_at!r}, in {unit}"
            )


@dataclasses.dataclass(frozen=True)
class Paper:
    """A file: the tables of one paper, by short names for the command line."""

    paper: str
    tables: dict[str, Table]


@dataclasses.dataclass(frozen=True)
class OwnTables(Paper):
    """A user's tables, and the file that they are in."""

    file: str


def read_paper(path) -> Paper:
    """The tables in a YAML file. Errors: `ConfigError` naming file and key."""
    if not Path(path).is_file():
        raise ConfigError(f"no such file of tables: {path}")
    try:
        return config.parse(Paper, config.read_yaml(path))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_papers(files=()) -> list[Paper]:
    """The papers of the zoo, and then those of `files`. Errors: `ConfigError`, also for two tables of one name."""
    paths = [*sorted((recipes.folder() / "tables").glob("*.yaml")), *files]
    papers = [read_paper(path) for path in paths[: len(paths) - len(files)]]
    papers += [OwnTables(**vars(_beside(path)), file=str(path)) for path in files]
    seen = set()
    for paper, path in zip(papers, paths, strict=True):
        for name in paper.tables:
            if name in seen:
                raise ConfigError(f"{path}: there is another table {name!r}.")
            seen.add(name)
    return papers


def _beside(path):
    """The tables in a user's file, whose recipe files lie beside it."""
    paper = read_paper(path)

    def found(cell):
        own = Path(cell.recipe).suffix in (".yaml", ".yml")
        recipe = str(Path(path).parent / cell.recipe) if own else recipes.current_name(cell.recipe)
        return dataclasses.replace(cell, recipe=recipe)

    return dataclasses.replace(
        paper,
        tables={
            name: dataclasses.replace(
                table, cells={title: found(cell) for title, cell in table.cells.items()}
            )
            for name, table in paper.tables.items()
        },
    )


def select(papers, wanted=(), overrides=()) -> tuple[list[Paper], set[str]]:
    """The papers, with `overrides` laid over every recipe of the wanted tables, and the names of these.

    where:
      wanted: names of tables; none stands for all.

    Errors: `ConfigError` for an unknown table.
    """
    known = [name for paper in papers for name in paper.tables]
    for name in wanted:
        if name not in known:
            raise ConfigError(f"unknown table {name!r}{nearest(name, known)}")
    chosen = set(wanted) or set(known)

    def laid_over(name, table):
        if name not in chosen:
            return table
        # After those of the cell: who gives them means them.
        cells = {
            title: dataclasses.replace(cell, overrides=(*cell.overrides, *overrides)) if cell.recipe else cell
            for title, cell in table.cells.items()
        }
        return dataclasses.replace(table, cells=cells)

    return [
        dataclasses.replace(paper, tables={n: laid_over(n, t) for n, t in paper.tables.items()})
        for paper in papers
    ], chosen
