"""The command that renders synthnorb."""

import typer

from capszoo.data.synthnorb import generate


def main(data_dir: str | None = None, seed: int = 0, processes: int = 2) -> None:
    """Render synthnorb into DATA_DIR (default: TFDS's folder) unless it is there."""
    typer.echo(generate(data_dir, seed, processes))


if __name__ == "__main__":
    typer.run(main)
