"""What a measurement was made on. No names of hosts, no paths."""

import importlib.metadata
import os
import platform
from pathlib import Path

from capszoo.protocols import provenance

# Other work per CPU above which absolute numbers, and with them small ratios, are not to be trusted.
BUSY = 0.3


def facts() -> dict:
    """Processor, accelerators, libraries, code revision, date, and how busy the machine is with other work."""
    packages = [name for name in ("numba", "ai-edge-litert") if _version(name)]
    return {
        "processor": _processor(),
        "cpus": _cpus(),
        "accelerators": accelerators(),
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "libraries": ", ".join([provenance.backend(), *(f"{name} {_version(name)}" for name in packages)]),
        "capszoo": provenance.revision(),
        "date": provenance.today(),
        "load_before": os.getloadavg()[0],
    }


def accelerators() -> list[str]:
    """Names of the GPUs that TensorFlow sees; nothing on another backend."""
    import keras

    if keras.backend.backend() != "tensorflow":
        return []
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    return [tf.config.experimental.get_device_details(device).get("device_name", "GPU") for device in devices]


def busy(machine) -> bool:
    """Whether other work was running when `facts` were taken."""
    return machine["load_before"] > BUSY * machine["cpus"]


def _cpus():
    """How many CPUs this process may use, where the system says so; else how many there are."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count()


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor():
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
