"""Models as bundles that servers and phones run without capszoo, and the proof that they agree."""

from capszoo.extras import extra

with extra("export"):
    from capszoo.exporting.bundle import export
    from capszoo.exporting.recording import record_exports
    from capszoo.exporting.verification import verify

__all__ = ["export", "record_exports", "verify"]
