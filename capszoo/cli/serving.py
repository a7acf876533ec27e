"""The command that starts a model server."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from capszoo.cli.app import Trained, app


@app.command()
def serve(
    name: Trained,
    bundles: Annotated[
        Path, typer.Option(help="Folder with bundles; where NAME is not in it, it is exported there.")
    ] = Path("bundles"),
    port: Annotated[int, typer.Option(help="Of REST.")] = 8501,
    grpc_port: Annotated[int, typer.Option(help="Of gRPC.")] = 8500,
    python: Annotated[
        Path, typer.Option(help="A Python with kserve and tensorflow, for KServe's model server.")
    ] = Path(sys.executable),
):
    """Start a model server that is here (TensorFlow Serving, KServe's, or Docker's) on a preset's bundle."""
    from capszoo.exporting import servers

    model = Path(name).name
    bundle = servers.newest(bundles / model) or servers.newest(servers.PUBLISHED / model)
    # Before an export of minutes for which there is no server.
    start = servers.command(model, bundle or bundles / model / "1", port, grpc_port, python)
    if bundle is None:
        import capszoo as zoo

        typer.echo(f"exporting {model} to {bundles / model / '1'}")
        zoo.export(zoo.load(name), bundles, name=model)
        bundle = bundles / model / "1"
    typer.echo(f"http://localhost:{port}/v1/models/{model}: {' '.join(start)}")
    sys.stdout.flush()
    os.execvpe(start[0], start, {**servers.environment(bundle), **os.environ})
