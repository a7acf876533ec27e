"""The folder of a preset, in which another preset takes the place of the one that is there.

Its card is the switch: `find_file` asks it for the SHA-256 of every file, and finds a file by that, too. So whoever
reads finds the old preset or the new one, whole, whenever the one who writes is killed.
"""

import contextlib
import dataclasses
import re
import shutil
from pathlib import Path

from capszoo.config import ConfigError
from capszoo.training.files import LOCK, is_temporary, locked
from capszoo.zoo.card import Card, check_card, read_card, write_card
from capszoo.zoo.locating import CARD, hashed_name

NEW = ".new"


@contextlib.contextmanager
def replacing_preset(folder):
    """An empty folder, for the files of a preset; at the end `replace` makes them those of the preset in `folder`.

    Whatever an earlier one has left, who was killed, is cleared. After an error nothing has changed.
    Errors: `ConfigError` where another process publishes the preset, and for a folder of anything but a preset.
    """
    folder = Path(folder)
    _require_preset(folder)
    new = folder / NEW
    with locked(folder, f"another process is publishing in {folder}. Wait for it."):
        try:
            _clear(folder)
            new.mkdir()
            yield new
        finally:
            shutil.rmtree(new, ignore_errors=True)
            if not (folder / CARD).exists():
                shutil.rmtree(folder)


def replace(folder, card):
    """The files in the folder that `replacing_preset` gave become those of the preset, with `card`.

    Errors: `ConfigError` for a card that nobody could read again; nothing has changed then.
    """
    folder = Path(folder)
    check_card(card)
    for file, described in card.files.items():
        (folder / NEW / file).replace(folder / hashed_name(file, described.sha256))
    write_card(card, folder)
    _clear(folder)


def update_card(folder, files, **values) -> Card:
    """Writes the card of the preset in `folder` again with other `values`, and returns it.

    where:
      files: of the card when what `values` say was measured.

    Errors: `ConfigError` where the preset has been published anew meanwhile, or is at this moment.
    """
    with locked(folder, f"another process is publishing in {folder}. Wait for it."):
        card = read_card(folder / CARD)
        if card.files != files:
            raise ConfigError(f"{card.name} has been published anew meanwhile; its card is left as it is.")
        card = dataclasses.replace(card, **values)
        write_card(card, folder)
    return card


def _require_preset(folder):
    """Errors: `ConfigError` unless `folder` has a card or nothing that publishing has not made."""
    if (folder / CARD).exists() or not folder.exists():
        return
    others = [
        path.name for path in folder.iterdir() if path.name not in (LOCK, NEW) and not _left_behind(path)
    ]
    if others:
        raise ConfigError(
            f"{folder} holds no preset but other files, such as {min(others)}. Publish elsewhere with --out."
        )


def _left_behind(path):
    """Whether a file is what publishing leaves where its process is killed."""
    return is_temporary(path) or re.fullmatch(r"[0-9a-f]{64}\.\w+", path.name) is not None


def _clear(folder):
    """Gives files their published names, where the card knows them by their hash, and removes what nobody knows."""
    if (folder / CARD).exists():
        for file, described in read_card(folder / CARD).files.items():
            hashed = folder / hashed_name(file, described.sha256)
            if hashed.exists():
                hashed.replace(folder / file)
    for path in folder.iterdir():
        if path.name == NEW:
            shutil.rmtree(path)
        elif _left_behind(path):
            path.unlink()
