"""Where the files of a preset lie: found, checked, or downloaded."""

import os
from pathlib import Path

import platformdirs

from capszoo.zoo.integrity import IntegrityError, verify_file

PACKAGE = Path(__file__).parents[1]
WEIGHTS, CHECK, CARD = "weights.safetensors", "check.safetensors", "card.json"


class WeightsNotFound(FileNotFoundError):
    """Weights that are nowhere they could be."""


def weights_folder() -> Path:
    """Where the weights inside the package lie."""
    return PACKAGE / "weights"


def cache_folder() -> Path:
    """`CAPSZOO_HOME`, or the user's cache folder: where downloaded weights are kept."""
    return Path(os.environ.get("CAPSZOO_HOME") or platformdirs.user_cache_dir("capszoo"))


def find_file(preset, file: str) -> Path:
    """Where a file of a published preset lies, verified against its card; downloads it where nothing is nearer.

    Errors: `WeightsNotFound` saying what was wanted and where it was looked for; `IntegrityError`.
    """
    folders = [
        cache_folder() / "weights",
        weights_folder(),
        PACKAGE.parent / "export" / "weights",
    ]
    candidates = [folder / preset.name / file for folder in folders]
    expected = preset.card.files[file]
    for path in candidates:
        if path.is_file():
            verify_file(path, expected.sha256, expected.bytes)
            return path
    looked = "\n  ".join(map(str, candidates))
    url = os.environ.get("CAPSZOO_RELEASE_URL")
    if not url:
        raise WeightsNotFound(
            f"{file} of {preset.name} is not here. Looked for\n  {looked}\n"
            "and CAPSZOO_RELEASE_URL, from which it could be downloaded, is not set."
        )
    return _download(f"{url.rstrip('/')}/{preset.name}/{file}", candidates[0], expected.sha256)


def _download(url, target, sha256):
    import pooch

    try:
        return Path(pooch.retrieve(url, f"sha256:{sha256}", target.name, target.parent, progressbar=False))
    except ValueError as error:
        raise IntegrityError(f"{url} is not the published file: {error}") from error
    except OSError as error:
        raise WeightsNotFound(f"{url} could not be downloaded: {error}") from error
