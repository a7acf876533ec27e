"""Makes the notebooks from their scripts, with what their cells print and draw: `make notebooks`."""

import argparse
import tempfile
from pathlib import Path

import jupytext
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def executed(script):
    """The notebook of a script, executed. Errors: nbclient's `CellExecutionError` of the first cell that fails."""
    notebook = jupytext.read(script)
    # What cells write is not kept.
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=1200, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute()
    for number, cell in enumerate(notebook.cells):
        # The same name for the same cell, so that a notebook made again differs only where it is another.
        cell["id"] = f"cell{number}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def main():
    """Executes the scripts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scripts", nargs="*", type=Path)
    found = [path for path in sorted(FOLDER.glob("*.py")) if path.name != Path(__file__).name]
    for script in parser.parse_args().scripts or found:
        jupytext.write(executed(script), script.with_suffix(".ipynb"))
        print(f"written: {script.with_suffix('.ipynb')}")


if __name__ == "__main__":
    main()
