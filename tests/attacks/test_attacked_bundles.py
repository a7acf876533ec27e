"""Bundles: altered files are found, and what is served refuses pictures that are none."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from attacks.damage import damaged

from capszoo.exporting import verify
from capszoo.exporting.verification import REPORT
from capszoo.zoo.integrity import IntegrityError
from capszoo.zoo.locating import PACKAGE

# By name only: many inputs take minutes.
pytestmark = [pytest.mark.attack, pytest.mark.slow]


@pytest.fixture
def bundle(tmp_path):
    """A copy of a published bundle."""
    newest = max(
        (PACKAGE.parent / "export" / "models" / "efficient_mnist").glob("[0-9]*"), key=lambda p: int(p.name)
    )
    return shutil.copytree(newest, tmp_path / "1")


def test_altered_files(attacks, bundle):
    for path in sorted(path for path in bundle.rglob("*") if path.is_file() and path.name != REPORT):
        contents = path.read_bytes()
        for what, copy in [*damaged(contents, attacks.rng, 4), ("one byte more", contents + b"x")]:
            if copy != contents:
                path.write_bytes(copy)
                attacks(f"{path.name} {what}", lambda: verify(bundle), IntegrityError)
        path.unlink()
        attacks(f"{path.name} missing", lambda: verify(bundle), IntegrityError)
        path.write_bytes(contents)


def test_pictures_that_are_none(attacks, bundle):
    served = tf.saved_model.load(str(bundle)).signatures["predict_bytes"]
    good = (PACKAGE / "data" / "samples" / "digits" / "0_a.png").read_bytes()
    copies = [*damaged(good, attacks.rng, 150), ("empty", b""), ("text", b"a" * 1000)]
    for what, copy in copies:
        attacks(
            what,
            lambda copy=copy: served(image_bytes=tf.constant([copy]))["scores"].numpy(),
            tf.errors.InvalidArgumentError,
            harmless=lambda scores: bool(np.isfinite(scores).all()),
        )
