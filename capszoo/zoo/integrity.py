"""Files that are exactly what was published, or an error."""

import hashlib
from pathlib import Path


class IntegrityError(ValueError):
    """A file or a model that is not the published one."""


def sha256_of(path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_file(path, sha256: str, size: int):
    """Errors: `IntegrityError` unless the file has this size in bytes and this SHA-256."""
    actual_size = Path(path).stat().st_size
    if actual_size != size:
        raise IntegrityError(f"{path}: {size} bytes expected. Received: {actual_size} (truncated?)")
    actual = sha256_of(path)
    if actual != sha256:
        raise IntegrityError(
            f"{path}: sha256 {sha256} expected. Received: {actual} (damaged, or another version)"
        )
