"""Weight files: whatever is not exactly weights of the model is refused, and the model stays as it was."""

import json

import numpy as np
import pytest
from attacks.damage import damaged
from safetensors.numpy import save

from capszoo.models import VariationalAutoencoder
from capszoo.training.weight_files import WeightsError, load_weights, read_header, save_weights

# By name only: many inputs take minutes.
pytestmark = [pytest.mark.attack, pytest.mark.slow]


@pytest.fixture(scope="module")
def model():
    return VariationalAutoencoder(hidden=8, latents=2).build((28, 28, 1), 10)


@pytest.fixture(scope="module")
def contents(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    save_weights(model, path, metadata={"step": 1})
    return path.read_bytes()


def test_damaged_files(attacks, model, contents, tmp_path):
    path, before = tmp_path / "weights.safetensors", [np.array(w) for w in model.get_weights()]
    size = 8 + int.from_bytes(contents[:8], "little")

    def finite(_):
        """A bit that is flipped in a number makes another number, which only a card's SHA-256 can tell."""
        return all(np.isfinite(weight).all() for weight in model.get_weights())

    def unchanged(_):
        return all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))

    for what, copy in damaged(contents, attacks.rng, 200):
        path.write_bytes(copy)
        attacks(what, lambda: load_weights(model, path), WeightsError, harmless=finite)
        model.set_weights(before)
    for what, copy in damaged(contents[:size], attacks.rng, 200):
        path.write_bytes(copy + contents[size:])
        attacks(f"header {what}", lambda: load_weights(model, path), WeightsError, harmless=unchanged)
        model.set_weights(before)


def test_headers_that_claim_too_much(attacks, model, tmp_path):
    path = tmp_path / "weights.safetensors"
    name = model.weights[0].path
    for shape, end in [
        ([10**12], 4 * 10**12),
        ([2**62, 2**62], 16),
        ([-1], 4),
        ([1e30], 4),
        (["a"], 4),
        ([[1]], 4),
    ]:
        header = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}).encode()
        for length in (len(header), 10**9, 2**63, 2**64 - 1, 0):
            path.write_bytes(length.to_bytes(8, "little") + header)
            attacks(f"{shape} in {length} bytes", lambda: load_weights(model, path), WeightsError)
    for text in (b"[" * 10**6, b'{"a":' * 10**5, b"\xff" * 100, b"", b"{}" * 50, b"null"):
        path.write_bytes(len(text).to_bytes(8, "little") + text)
        attacks(f"header {text[:9]}...", lambda: load_weights(model, path), WeightsError)
    with path.open("wb") as file:
        file.truncate(10**12)
    attacks("a sparse file of 10^12 bytes", lambda: read_header(path), WeightsError)


def test_numbers_that_are_no_weights(attacks, model, tmp_path):
    path = tmp_path / "weights.safetensors"
    good = {weight.path: np.array(weight) for weight in model.weights}
    for name, array in good.items():
        for value in (np.nan, np.inf, -np.inf):
            wrong = array.copy()
            wrong.flat[int(attacks.rng.integers(wrong.size))] = value
            path.write_bytes(save({**good, name: wrong}))
            attacks(f"{value} in {name}", lambda: load_weights(model, path), WeightsError)
        for dtype in (np.complex64, np.int32, bool):
            path.write_bytes(save({**good, name: array.astype(dtype)}))
            attacks(f"{dtype.__name__} as {name}", lambda: load_weights(model, path), WeightsError)
        path.write_bytes(save({**good, name: array[..., None]}))
        attacks(f"another shape of {name}", lambda: load_weights(model, path), WeightsError)
        path.write_bytes(save({key: value for key, value in good.items() if key != name}))
        attacks(f"no {name}", lambda: load_weights(model, path), WeightsError)
