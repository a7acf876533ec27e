"""The command that makes the papers' tables."""

from pathlib import Path
from typing import Annotated

import typer

from capszoo.cli.app import app


@app.command()
def reproduce(
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Tables by name, or files of tables of your own [default: all]."),
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="Show every cell with its state, and stop.")
    ] = False,
    hours: Annotated[
        float | None,
        typer.Option(help="Stop after so many hours; 0 only writes the page [default: no limit]."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the trainings; several machines may share it.")] = Path(
        "runs/reproduce"
    ),
    docs: Annotated[
        Path | None, typer.Option(help="Folder that gets page, figures and results.json [default: --out].")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", help="Laid over every recipe of these tables, e.g. data.name=smallnorb."),
    ] = None,
):
    """Train and measure what is missing of the papers' tables, cheapest first, and write the page of results.

    Killed, it goes on with the same command. Cells that the zoo has measured, for a published card or for
    docs/results.md, have its number already.
    """
    from capszoo.config import ConfigError
    from capszoo.extras import require
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.protocols.tables import show, table_of
    from capszoo.results import page
    from capszoo.results.tables import read_papers, select
    from capszoo.training.files import make_folder

    # Intervals of several trainings take it: not after half of the tables are shown.
    require("train", "scipy")
    files = [name for name in tables or () if name.endswith((".yaml", ".yml"))]
    papers = read_papers(files)
    own = [name for paper in papers[len(papers) - len(files) :] for name in paper.tables] if files else []
    if files and not own:
        raise ConfigError(f"no tables in {', '.join(files)}")
    wanted = [name for name in tables or () if name not in files] + own
    papers, chosen = select(papers, wanted, options or ())
    results = page.gather(papers, out, docs or out)
    if list_only:
        for name in (name for paper in papers for name in paper.tables if name in chosen):
            show(
                table_of(page.state_rows(results, name, out), title=f"{name}: {results.tables()[name].title}")
            )
        return
    make_folder(docs or out)
    failed = []
    if hours != 0:
        from capszoo.results.queue import work

        with TerminalProgress() as progress:
            failed = work(results, [n for n in results.tables() if n in chosen], out, hours, progress)
    for path in page.write(results, docs or out):
        typer.echo(f"written: {path}")
    if failed:
        raise ValueError("\n".join(["some numbers could not be made:", *failed]))
