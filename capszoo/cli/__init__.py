"""The command line: `capszoo COMMAND`. Every command is a few lines around a function of the library."""

import logging
import sys

import typer

from capszoo.cli import making, measuring, reproducing, serving, zoo  # noqa: F401  (each registers its commands)
from capszoo.cli.app import app
from capszoo.cli.startup import quieten
from capszoo.extras import backend

__all__ = ["app", "main"]


def main():
    """Runs the command line; an error that a user can mend is one line and exit status 1."""
    quieten()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("capszoo").setLevel(logging.INFO)
    try:
        with backend():
            app()
    except (ValueError, OSError, ArithmeticError, RuntimeError, ImportError) as error:
        _fail(error)
    except MemoryError as error:
        _fail(f"memory is not enough: {error}")
    except Exception as error:
        # TensorFlow's errors, for instance of memory, have a base of their own, and it may not have been imported.
        if not type(error).__module__.startswith("tensorflow."):
            raise
        _fail(str(error).partition("\n")[0])


def _fail(message):
    typer.secho(f"error: {message}", fg="red", err=True)
    sys.exit(1)
