"""Where the files of a preset lie: found, checked, or downloaded."""

import importlib.util
import os
import tempfile
import warnings
from pathlib import Path

import platformdirs

from capszoo.zoo.downloading import download
from capszoo.zoo.integrity import IntegrityError, verify_file

PACKAGE = Path(__file__).parents[1]
WEIGHTS, CHECK, CARD = "weights.safetensors", "check.safetensors", "card.json"


class WeightsNotFound(FileNotFoundError):
    """Weights that are nowhere they could be."""


def weights_folder() -> Path:
    """Where the cards, and the weights inside the package, lie."""
    return PACKAGE / "weights"


def large_weights_folders() -> list[Path]:
    """Where weights that are too large for the package lie: in the distribution `capszoo-weights`, in a checkout."""
    found = importlib.util.find_spec("capszoo_weights")
    installed = [Path(folder) for folder in found.submodule_search_locations] if found else []
    return [*installed, PACKAGE.parent / "weights" / "capszoo_weights"]


def cache_folder() -> Path:
    """`CAPSZOO_HOME`, or the user's cache folder: where downloaded weights are kept.

    For a user without a home it lies among the temporary files; what is found there is verified as everywhere.
    """
    if os.environ.get("CAPSZOO_HOME"):
        # Not `Path.expanduser`, which fails for a user without a home.
        return Path(os.path.expanduser(os.environ["CAPSZOO_HOME"]))
    try:
        return Path(platformdirs.user_cache_dir("capszoo"))
    except RuntimeError:
        return Path(tempfile.gettempdir()) / "capszoo"


def hashed_name(file: str, sha256: str) -> str:
    """The name by which a file is found for what it holds: in the cache, and while a preset is being replaced."""
    return f"{sha256}{Path(file).suffix}"


def find_file(preset, file: str) -> Path:
    """Where a file of a published preset lies, verified against its card; downloads it where nothing is nearer.

    Downloads are kept under their SHA-256, so that what another version of a preset has left there is no hindrance. A
    file that is not what it should be is passed over with a warning; in the cache it is renamed to `NAME.wrong`.
    Errors: `WeightsNotFound` for a preset without weights, or saying where they were looked for; `IntegrityError` where
    only wrong files were found, and for a download that is not the published file.
    """
    if preset.card is None:
        raise WeightsNotFound(f"no weights are published for {preset.name!r}.")
    if file not in preset.card.files:
        raise WeightsNotFound(
            f"the card of {preset.name} knows no {file}, but {', '.join(preset.card.files)}. The card of a run is "
            "taken with the run's recipe.yaml beside it."
        )
    expected = preset.card.files[file]
    hashed = hashed_name(file, expected.sha256)
    cached = cache_folder() / "weights" / hashed
    folders = [weights_folder(), *large_weights_folders()]
    candidates = [
        *([preset.folder / hashed, preset.folder / file] if preset.folder else []),
        cached,
        weights_folder() / preset.name / hashed,
        *(folder / preset.name / file for folder in folders),
    ]
    wrong = []
    for path in candidates:
        # Unlike `Path.is_file` not an error where a folder may not be read.
        if not os.path.isfile(path):
            continue
        try:
            verify_file(path, expected.sha256, expected.bytes)
        except FileNotFoundError:
            # It got its published name just now, see `capszoo.zoo.replacing`.
            continue
        except (IntegrityError, OSError) as error:
            wrong.append(str(error) + (_set_aside(path) if path == cached else ""))
        else:
            _warn(wrong, path)
            return path
    url = os.environ.get("CAPSZOO_RELEASE_URL")
    if url:
        _fetch(f"{url.rstrip('/')}/{preset.name}/{file}", cached, expected)
        _warn(wrong, cached)
        return cached
    if wrong:
        raise IntegrityError("\n".join(wrong))
    looked = "\n  ".join(map(str, candidates))
    raise WeightsNotFound(
        f"{file} of {preset.name} is not here. Looked for\n  {looked}\n"
        "Large weights come with `pip install capszoo-weights`, or from CAPSZOO_RELEASE_URL, which is not set."
    )


def _set_aside(path):
    aside = path.with_name(f"{path.name}.wrong")
    try:
        path.replace(aside)
    except OSError as error:
        return f"; it could not be set aside ({error.strerror})"
    return f"; set aside as {aside}"


def _warn(wrong, used):
    for message in wrong:
        warnings.warn(f"{message}; {used} is used instead", stacklevel=4)


def _fetch(url, target, expected):
    try:
        download(url, target, expected.sha256, expected.bytes)
    except OSError as error:
        # Without its cause, which may repeat a password of the URL.
        raise WeightsNotFound(str(error)) from None
