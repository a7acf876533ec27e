"""The command that starts a model server."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from capszoo.cli.app import ModelName, Trained, app
from capszoo.cli.startup import environment_as_given


@app.command()
def serve(
    name: Trained,
    model_name: ModelName = None,
    bundles: Annotated[
        Path | None,
        typer.Option(
            help="Folder with bundles; where NAME is not in it, it is exported there. By default bundles/, of a run "
            "in its folder."
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Of REST.")] = 8501,
    grpc_port: Annotated[int, typer.Option(help="Of gRPC.")] = 8500,
    python: Annotated[
        Path, typer.Option(help="A Python with kserve and tensorflow, for KServe's model server.")
    ] = Path(sys.executable),
    batching: Annotated[
        bool, typer.Option("--batching", help="Compute requests that come together in one batch.")
    ] = False,
):
    """Start a model server that is here (TensorFlow Serving, KServe's, or Docker's) on a preset's or run's bundle."""
    from capszoo.exporting import servers
    from capszoo.exporting.naming import checked_name
    from capszoo.zoo.presets import get_preset
    from capszoo.zoo.recipes import is_published, is_run

    outside = Path(name).resolve() if is_run(name) or is_published(name) else None
    if outside is None and Path(name).name != name:
        raise ValueError(f"a preset's name, or the folder of one or of a run, is needed. Received: {name}")
    model = checked_name(model_name or (outside.name if outside else name))
    bundles = bundles or (outside or Path()) / "bundles"
    bundle, new = _bundle(bundles / model, _weights(name))
    if bundle is None and outside is None:
        get_preset(name)  # A wrong name is none of the server's.
    # Before an export of minutes for which there is no server.
    start = servers.command(model, bundle or new, port, grpc_port, python, batching)
    if bundle is None:
        import capszoo as zoo

        typer.echo(f"exporting {model} to {new}")
        zoo.export(zoo.load(name), bundles, name=model, version=int(new.name))
        bundle = new
    typer.echo(f"http://localhost:{port}/v1/models/{model}: {' '.join(start)}")
    sys.stdout.flush()
    os.execvpe(start[0], start, {**servers.environment(bundle), **environment_as_given()})


def _weights(name):
    """Which weights a bundle must have, see `capszoo.exporting.identity`; None where they are not here."""
    from capszoo.config import ConfigError
    from capszoo.exporting import identity
    from capszoo.training.folder import BEST
    from capszoo.zoo import locating
    from capszoo.zoo.presets import get_preset
    from capszoo.zoo.recipes import is_run

    try:
        path = Path(name) / BEST if is_run(name) else locating.find_file(get_preset(name), locating.WEIGHTS)
        return identity.of_file(path)
    except (ConfigError, locating.WeightsNotFound):
        # The bundle of a model that is no preset.
        return None


def _bundle(folder, weights):
    """The version to serve, None where there is none yet, and the next one in `folder`."""
    from capszoo.exporting import identity, servers

    newest = servers.newest(folder)
    new = folder / str(int(newest.name) + 1 if newest else 1)
    for bundle in (newest, servers.newest(servers.PUBLISHED / folder.name)):
        if bundle and weights in (None, identity.of_bundle(bundle)):
            return bundle, new
    return None, new
