"""Models as bundles that servers and phones run without capszoo, and the proof that they agree."""

from capszoo.exporting.bundle import export
from capszoo.exporting.verification import verify

__all__ = ["export", "verify"]
