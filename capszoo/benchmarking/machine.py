"""What a measurement was made on. No names of hosts, no paths."""

import importlib.metadata
import os
import platform
from pathlib import Path

from capszoo.protocols import provenance
from capszoo.training.accelerators import accelerators

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


def _processor(path=Path("/proc/cpuinfo")):
    """The first processor's name with its family and model: on virtual machines generations share a name."""
    first = path.read_text(encoding="utf-8").partition("\n\n")[0] if path.exists() else ""
    pairs = [line.partition(":") for line in first.splitlines()]
    about = {name.strip(): value.strip() for name, _, value in pairs}
    if "model name" not in about:
        return platform.processor() or platform.machine()
    numbers = [
        f"{name.removeprefix('cpu ')} {about[name]}" for name in ("cpu family", "model") if name in about
    ]
    return f"{about['model name']} ({', '.join(numbers)})" if numbers else about["model name"]
