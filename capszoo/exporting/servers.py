"""Existing model servers, and how each is started on a bundle."""

import json
import shutil
import subprocess
from pathlib import Path

from capszoo.exporting.verification import REPORT

PACKAGE = Path(__file__).parents[1]
# In the package of a wheel, or in the deployment kit of a checkout.
KSERVE_SERVER = (
    PACKAGE / "exporting" / "kserve_server.py",
    PACKAGE.parent / "export" / "serving" / "kserve_server.py",
)
PUBLISHED = PACKAGE.parent / "export" / "models"
IMAGE = "tensorflow/serving:2.20.0"
# How long Docker's daemon may take to answer.
DOCKER_SECONDS = 20
# TensorFlow's own variable: how many threads share one operation.
THREADS = "TF_NUM_INTRAOP_THREADS"


class NoServer(RuntimeError):
    """No model server that could be started."""


def newest(folder):
    """The version with the highest number in the folder of a model; None where there is none."""
    complete = [path.parent for path in Path(folder).glob("*/saved_model.pb")]
    # A server too goes by names that are numbers, and takes no notice of 1_old.
    versions = [path for path in complete if path.name.isdecimal()]
    return max(versions, key=lambda path: int(path.name), default=None)


def environment(bundle):
    """Variables with which a server answers faster from `bundle`, see `capszoo.export`; {} where it names none.

    No other variable of a bundle is looked at: some make a process run code.
    """
    try:
        threads = json.loads((Path(bundle) / REPORT).read_text(encoding="utf-8"))["environment"][THREADS]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return {}
    return {THREADS: threads} if isinstance(threads, str) else {}


def command(name, bundle, port, grpc_port, python, batching=False):
    """The command that starts the first of TensorFlow Serving, KServe's model server and Docker that is here.

    where:
      name: of the model, in addresses.
      bundle: the folder of one version.
      port, grpc_port: of REST and of gRPC.
      python: an interpreter, which is asked whether it has `kserve` and `tensorflow`.
      batching: whether requests that come together are computed together, which KServe's cannot.

    Errors: `NoServer` naming what was looked for, or a `python` that cannot be started.
    """
    bundle = Path(bundle).resolve()
    if shutil.which("tensorflow_model_server"):
        ports = f"--rest_api_port={port}", f"--port={grpc_port}"
        options = _batching(bundle) if batching else ()
        model = f"--model_name={name}", f"--model_base_path={bundle.parent}"
        return "tensorflow_model_server", *ports, *model, *options
    if not batching and _has_kserve(python):
        script = next(path for path in KSERVE_SERVER if path.is_file())
        ports = "--http_port", str(port), "--grpc_port", str(grpc_port)
        return str(python), str(script), "--model_name", name, "--bundle", str(bundle), *ports
    if _has_docker():
        ports = "-p", f"127.0.0.1:{port}:8501", "-p", f"127.0.0.1:{grpc_port}:8500"
        mount = "-v", f"{bundle.parent}:/models/{name}:ro", "-e", f"MODEL_NAME={name}"
        options = _batching(Path("/models", name, bundle.name)) if batching else ()
        # Docker hands on the variable's value here, where it has one.
        return "docker", "run", "--rm", *ports, *mount, "-e", THREADS, IMAGE, *options
    if batching:
        raise NoServer(
            "no model server that batches was found. Looked for tensorflow_model_server on the path and for docker "
            "with its daemon; KServe's does not batch"
        )
    raise NoServer(
        "no model server was found. Looked for tensorflow_model_server on the path, for kserve and tensorflow in "
        f"{python} (pip install kserve tensorflow-cpu, best in an environment of its own, then --python), "
        "and for docker with its daemon"
    )


def _batching(bundle):
    """TensorFlow Serving's options for what `bundle` says of batches; the folder is the one that the server sees."""
    return "--enable_batching=true", f"--batching_parameters_file={bundle / 'batching_params.pbtxt'}"


def _has_docker():
    """Whether there is Docker, and its daemon answers: the client alone starts nothing."""
    if not shutil.which("docker"):
        return False
    try:
        asked = subprocess.run(
            ["docker", "version"], check=False, capture_output=True, timeout=DOCKER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _has_kserve(python):
    # Not in the present folder, whose every subfolder could be taken for a package.
    check = (
        "import sys; from importlib.util import find_spec; sys.path = [path for path in sys.path if path]; "
        "raise SystemExit(not (find_spec('kserve') and find_spec('tensorflow')))"
    )
    try:
        return subprocess.run([python, "-c", check], check=False).returncode == 0
    except OSError as error:
        raise NoServer(
            f"a Python that can be started is needed (--python). Received: {python} ({error.strerror})"
        ) from error
