"""A weight file is written whole or not at all, and a model gets all of it or nothing."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import safetensors.numpy
from support import fill

from capszoo.models import ConvNet, DynamicCapsNet
from capszoo.training import weight_files
from capszoo.training.files import is_temporary
from capszoo.training.weight_files import (
    WeightsError,
    load_weights,
    read_arrays,
    save_weights,
    start_weights,
    write_arrays,
)

NET = DynamicCapsNet(channels=8, primary_types=2, primary_dim=4, class_dim=4, decoder=False)
SHAPE = (20, 20, 1)


@pytest.fixture(scope="module")
def model():
    return fill(NET.build(SHAPE, 3))


@pytest.fixture
def other():
    """A model of the same architecture with other weights."""
    return fill(NET.build(SHAPE, 3), seed=8)


@pytest.fixture
def path(model, tmp_path):
    """The model's weight file."""
    path = tmp_path / "weights.safetensors"
    save_weights(model, path, metadata={"step": 3})
    return path


def values(model):
    return {variable.path: np.asarray(variable).copy() for variable in model.variables}


def assert_equal(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].dtype == right[name].dtype
        np.testing.assert_array_equal(left[name], right[name], strict=True, err_msg=name)


def test_variables_have_paths_of_their_own_so_that_none_is_lost(model):
    assert len({variable.path for variable in model.variables}) == len(model.variables) > 4


def test_what_is_loaded_is_what_was_saved_and_the_model_says_the_same(model, other, path):
    images = np.random.default_rng(0).random((4, *SHAPE), dtype="float32")
    assert (other.predict_on_batch(images)["scores"] != model.predict_on_batch(images)["scores"]).any()
    assert load_weights(other, path) == {"step": 3}
    assert_equal(values(other), values(model))
    for key in ("scores", "poses"):
        np.testing.assert_array_equal(
            other.predict_on_batch(images)[key], model.predict_on_batch(images)[key]
        )


def test_half_precision_is_the_nearest_half(model, other, tmp_path):
    path = tmp_path / "half.safetensors"
    save_weights(model, path, "float16")
    arrays, _ = read_arrays(path)
    assert {array.dtype.name for array in arrays.values()} == {"float16"}
    load_weights(other, path)
    for name, value in values(other).items():
        assert value.dtype == "float32"
        np.testing.assert_array_equal(value, values(model)[name].astype("float16"))


@pytest.mark.parametrize("value", [1e5, -1e5, np.inf, np.nan])
def test_weights_that_do_not_fit_into_half_precision_are_refused(other, tmp_path, value):
    path = tmp_path / "half.safetensors"
    variable = other.get_layer("class_capsules").trainable_variables[0]
    weights = np.asarray(variable).copy()
    weights.flat[5] = value
    variable.assign(weights)
    with pytest.raises(WeightsError, match=f"{variable.path} has values that are not finite in float16"):
        save_weights(other, path, "float16")
    assert not any(tmp_path.iterdir())


def test_a_value_too_large_for_half_precision_fits_into_single(other, tmp_path):
    variable = other.trainable_variables[0]
    variable.assign(np.full(variable.shape, 1e5, "float32"))
    save_weights(other, tmp_path / "single.safetensors")
    arrays, _ = read_arrays(tmp_path / "single.safetensors")
    assert (arrays[variable.path] == 1e5).all()


def test_counters_and_scalars_keep_type_and_shape(tmp_path):
    class Counting(keras.layers.Layer):
        def build(self, shape):
            self.count = self.add_weight(
                shape=(), dtype="int64", initializer="zeros", trainable=False, name="count"
            )
            self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

        def call(self, images):
            return images * self.scale

    def build():
        images = keras.Input((2,))
        return keras.Model(images, Counting(name="counting")(images))

    model = build()
    model.get_layer("counting").count.assign(2**40 + 1)
    model.get_layer("counting").scale.assign(0.5)
    save_weights(model, tmp_path / "a.safetensors", "float16")
    arrays, _ = read_arrays(tmp_path / "a.safetensors")
    assert {name: (array.shape, array.dtype.name) for name, array in arrays.items()} == {
        "counting/count": ((), "int64"),
        "counting/scale": ((), "float16"),
    }
    again = build()
    load_weights(again, tmp_path / "a.safetensors")
    assert (int(again.get_layer("counting").count), float(again.get_layer("counting").scale)) == (
        2**40 + 1,
        0.5,
    )


def test_arrays_of_any_layout_are_written_as_they_read(tmp_path):
    arrays = {
        "transposed": np.arange(6).reshape(2, 3).T,
        "sliced": np.arange(10.0)[::3],
        "scalar": np.array(3),
    }
    write_arrays(tmp_path / "a", arrays)
    assert_equal(read_arrays(tmp_path / "a")[0], arrays)


def test_metadata_come_back_as_they_were(tmp_path):
    metadata = {"step": 3, "error": 0.25, "none": None, "text": 'é "quoted"', "list": [1, {"a": 2}]}
    write_arrays(tmp_path / "a", {"x": np.zeros(1)}, metadata)
    assert read_arrays(tmp_path / "a")[1] == metadata


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_is_refused_and_the_model_unchanged(other, path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    before = values(other)
    with pytest.raises(WeightsError, match="truncated or damaged") as error:
        load_weights(other, path)
    assert str(path) in str(error.value)
    assert_equal(values(other), before)


@pytest.mark.parametrize(
    "data",
    [
        b"garbage" * 100,
        b"\x80\x04\x95pickle",
        b"PK\x03\x04 a zip file",
        b"\xff" * 64,
        b"\x02" + bytes(7) + b"{}x",
    ],
)
def test_a_foreign_file_is_refused_and_the_model_unchanged(other, path, data):
    path.write_bytes(data)
    before = values(other)
    with pytest.raises(WeightsError, match="not a readable safetensors file"):
        load_weights(other, path)
    assert_equal(values(other), before)


def test_metadata_of_another_program_are_text(path):
    safetensors.numpy.save_file({"x": np.zeros(1)}, path, metadata={"format": "pt", "step": "3"})
    assert read_arrays(path) == ({"x": np.zeros(1)}, {"format": "pt", "step": 3})


@pytest.mark.parametrize("name", ["nothing.safetensors", "."])
def test_a_missing_file_is_refused(other, tmp_path, name):
    with pytest.raises(WeightsError, match="no weight file at"):
        load_weights(other, tmp_path / name)


def test_every_missing_extra_and_misshapen_variable_is_named_and_the_model_unchanged(other, path):
    arrays, _ = read_arrays(path)
    arrays["conv1/moments"] = np.zeros(3, "float32")
    arrays["other/kernel"] = np.zeros(3, "float32")
    del arrays["conv1/bias"], arrays["primary_capsules/bias"]
    arrays["conv1/kernel"] = arrays["conv1/kernel"][..., :7]
    arrays["primary_capsules/kernel"] = arrays["primary_capsules/kernel"].reshape(-1)
    write_arrays(path, arrays)
    before = values(other)
    with pytest.raises(WeightsError) as error:
        load_weights(other, path)
    head, *problems = str(error.value).splitlines()
    assert head == f"{path} does not fit the model:"
    assert [problem.strip() for problem in problems] == [
        "missing: conv1/bias",
        "missing: primary_capsules/bias",
        "not in the model: conv1/moments",
        "not in the model: other/kernel",
        "conv1/kernel: expected shape (9, 9, 1, 8). Received: (9, 9, 1, 7)",
        "primary_capsules/kernel: expected shape (9, 9, 8, 8). Received: (5184,)",
    ]
    assert_equal(values(other), before)


def test_fresh_variables_are_left_as_they_are_and_may_be_missing_or_misshapen(path, model):
    more = fill(NET.build(SHAPE, 5), seed=9)
    before = values(more)
    load_weights(more, path, fresh=NET.head)
    head = {name for name in before if name.startswith(NET.head)}
    assert head
    assert_equal({n: v for n, v in values(more).items() if n in head}, {n: before[n] for n in head})
    rest = {n: v for n, v in values(model).items() if n not in head}
    assert_equal({n: v for n, v in values(more).items() if n not in head}, rest)


class Killed(BaseException):
    """What ends a program in the middle of anything."""


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Killed()])
@pytest.mark.parametrize("existing", [True, False])
def test_an_interrupted_write_leaves_what_was_there(model, other, tmp_path, monkeypatch, error, existing):
    path = tmp_path / "weights.safetensors"
    if existing:
        save_weights(model, path)

    def write_half(target, data):
        with target.open("wb") as file:
            file.write(data[:1000])
        # What a killed program leaves is known by its name, see `remove_temporary`.
        assert all(map(is_temporary, set(tmp_path.iterdir()) - {path}))
        assert not existing or path.stat().st_size > 1000  # half of the new file is not yet the file
        assert existing or not path.exists()
        raise error

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(type(error)):
        save_weights(other, path)
    assert [file.name for file in tmp_path.iterdir()] == (["weights.safetensors"] if existing else [])
    if existing:
        load_weights(other, path)
        assert_equal(values(other), values(model))


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path):
    """The operating system refuses to write more than 64 kB, as a full disk would."""
    path = tmp_path / "weights.safetensors"
    write_arrays(path, {"x": np.arange(3)})
    code = """
import resource, sys
import numpy as np
from capszoo.training.weight_files import write_arrays
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
try:
    write_arrays(sys.argv[1], {"x": np.zeros(100_000)})
except OSError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.stdout == f"[Errno 27] File too large: '{path}'\n", done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["weights.safetensors"]
    np.testing.assert_array_equal(read_arrays(path)[0]["x"], np.arange(3))


def test_a_write_replaces_the_file_at_once(tmp_path):
    """A reader that has the old file open goes on reading the old one."""
    path = tmp_path / "a"
    write_arrays(path, {"x": np.zeros(3)})
    old = path.read_bytes()
    with path.open("rb") as reader:
        write_arrays(path, {"x": np.ones(3)})
        assert reader.read() == old
    np.testing.assert_array_equal(read_arrays(path)[0]["x"], np.ones(3))


def test_the_random_state_of_dropout_is_no_weight(tmp_path):
    """Its name counts what else the process has made, so that a second model could not load it."""
    first, second = (ConvNet(channels=(2, 2), hidden=4).build((8, 8, 1), 3) for _ in range(2))
    assert {v.path for v in first.variables} != {v.path for v in second.variables}
    save_weights(first, tmp_path / "weights.safetensors")
    assert not any("seed" in name for name in read_arrays(tmp_path / "weights.safetensors")[0])
    load_weights(second, tmp_path / "weights.safetensors")
    for received, expected in zip(second.get_weights(), first.get_weights(), strict=True):
        np.testing.assert_array_equal(received, expected)


def test_weights_to_start_from_go_where_the_model_has_them(tmp_path):
    save_weights(_net(hidden=4), tmp_path / "w.safetensors")
    model = _net(hidden=4, more=True)
    left = start_weights(model, tmp_path / "w.safetensors")
    assert left == ["more/kernel", "more/bias"]
    arrays, _ = read_arrays(tmp_path / "w.safetensors")
    for weight in model.weights[:4]:
        np.testing.assert_array_equal(weight, arrays[weight.path])


def test_weights_of_another_shape_are_left_as_they_are(tmp_path):
    save_weights(_net(hidden=5), tmp_path / "w.safetensors")
    model = _net(hidden=4)
    before = model.get_weights()
    assert start_weights(model, tmp_path / "w.safetensors") == ["hidden/kernel", "hidden/bias", "out/kernel"]
    for after, expected in zip(model.get_weights()[:3], before[:3], strict=True):
        np.testing.assert_array_equal(after, expected)


def test_a_start_without_one_weight_of_the_model_is_refused(tmp_path):
    write_arrays(tmp_path / "other.safetensors", {"a": np.zeros(2), "out/kernel": np.zeros((9, 9))})
    with pytest.raises(WeightsError, match=r"has no weight of the model\. Received: a, out/kernel"):
        start_weights(_net(hidden=4), tmp_path / "other.safetensors")


def _net(hidden, more=False):
    """A small net of two or three layers."""
    x = inputs = keras.Input((3,))
    x = keras.layers.Dense(hidden, name="hidden")(x)
    x = keras.layers.Dense(2, name="out")(x)
    return keras.Model(inputs, keras.layers.Dense(2, name="more")(x) if more else x)


class Never:
    """What stands in for the reading of data where none may be read."""

    def __call__(self, *_):
        raise AssertionError("data were read")


def write_header(path, header, size):
    """A file of that header, a mapping or bytes, and of `size` bytes of data, which take no room on the disk."""
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)


@pytest.mark.parametrize(
    ("dtype", "received"),
    [("complex64", "C64"), ("bool", "bool"), ("int32", "int32"), ("uint8", "uint8")],
)
def test_numbers_that_are_not_real_are_no_weights(other, path, dtype, received):
    arrays, metadata = read_arrays(path)
    arrays["conv1/bias"] = arrays["conv1/bias"].astype(dtype)
    write_arrays(path, arrays, metadata)
    before = values(other)
    with pytest.raises(WeightsError, match=rf"conv1/bias: expected real numbers. Received: {received}"):
        load_weights(other, path)
    write_arrays(path, {"conv1/bias": arrays["conv1/bias"]})
    with pytest.raises(WeightsError, match="has no weight of the model"):
        start_weights(other, path)
    assert_equal(values(other), before)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_weights_that_are_not_finite_are_refused_and_the_model_unchanged(other, path, value):
    arrays, metadata = read_arrays(path)
    for name in ("conv1/bias", "conv1/kernel"):
        arrays[name] = arrays[name].astype("float64")
        arrays[name].flat[-1] = value
    write_arrays(path, arrays, metadata)
    before = values(other)
    for load in (load_weights, start_weights):
        with pytest.raises(WeightsError) as error:
            load(other, path)
        assert "conv1/bias: values that are not finite in float32" in str(error.value)
        assert "conv1/kernel: values that are not finite in float32" in str(error.value)
        assert_equal(values(other), before)


def test_counters_that_do_not_fit_are_refused(tmp_path):
    class Counting(keras.layers.Layer):
        def build(self, shape):
            self.count = self.add_weight(shape=(2,), dtype="int32", trainable=False, name="count")

        def call(self, images):
            return images

    model = keras.Sequential([keras.Input((2,)), Counting(name="counting")])
    name = model.weights[0].path
    write_arrays(tmp_path / "a", {name: np.array([3, 2**40])})
    with pytest.raises(WeightsError, match=f"{name}: values that do not fit into int32"):
        load_weights(model, tmp_path / "a")
    write_arrays(tmp_path / "a", {name: np.array([3, 2**20])})
    load_weights(model, tmp_path / "a")
    assert list(np.asarray(model.weights[0])) == [3, 2**20]


NESTED = 100_000


@pytest.mark.parametrize(
    "header",
    [
        b"[" * NESTED,
        b'{"x":' + b"[" * NESTED,
        {
            "__metadata__": {"step": "[" * NESTED},
            "x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        },
        {"x": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}},
        {"x": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}},
        {"x": {"dtype": "F32", "shape": [2**62, 8], "data_offsets": [0, 1]}},
    ],
    ids=["brackets", "brackets in an entry", "brackets in metadata", "short", "claims 10^12", "overflow"],
)
def test_a_header_that_cannot_be_is_refused(other, path, header):
    write_header(path, header, 1)
    before = values(other)
    for load in (load_weights, start_weights):
        with pytest.raises(WeightsError, match="not a readable safetensors file"):
            load(other, path)
    assert_equal(values(other), before)


@pytest.mark.parametrize("count", [3 * 10**9, 10**12])
def test_a_file_whose_shapes_are_not_the_models_is_refused_before_data_are_read(
    other, path, monkeypatch, count
):
    write_header(path, {"conv1/bias": {"dtype": "U8", "shape": [count], "data_offsets": [0, count]}}, count)
    monkeypatch.setattr(weight_files, "read_arrays", Never())
    with pytest.raises(WeightsError, match=rf"conv1/bias: expected shape \(8,\). Received: \({count},\)"):
        load_weights(other, path)
    with pytest.raises(WeightsError, match="has no weight of the model"):
        start_weights(other, path)


def test_more_data_than_memory_holds_is_an_error(path, monkeypatch):
    """There the library panics, which no handler of exceptions catches."""

    class PanicException(BaseException): ...

    def panic(_):
        raise PanicException("PyObject pointer is null")

    library = weight_files.safe_open

    @contextlib.contextmanager
    def opened(*arguments, **keywords):
        with library(*arguments, **keywords) as file:
            yield SimpleNamespace(
                keys=file.keys,
                get_slice=file.get_slice,
                metadata=file.metadata,
                get_tensor=panic,
            )

    monkeypatch.setattr(weight_files, "safe_open", opened)
    with pytest.raises(WeightsError, match=r"not a readable safetensors file.*pointer is null"):
        read_arrays(path)


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "C64"])
def test_numbers_that_are_not_read_here_are_refused_by_name(path, dtype):
    bits = {"BF16": 16, "F8_E4M3": 8, "C64": 64}[dtype]
    write_header(path, {"x": {"dtype": dtype, "shape": [8], "data_offsets": [0, bits]}}, bits)
    with pytest.raises(WeightsError, match=rf"types that are not read here: x \({dtype}\)"):
        read_arrays(path)
