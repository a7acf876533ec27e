"""Loading under a dtype policy of half precision: nearly the single-precision outputs, or refused in one line."""

import warnings

import keras
import numpy as np
import pytest
from support import dtype_policy

import capszoo
from capszoo.training.weight_files import read_arrays, write_arrays
from capszoo.zoo.integrity import IntegrityError
from capszoo.zoo.loading import check_behaviour
from capszoo.zoo.locating import CHECK, find_file

# How far outputs may be from the stored ones, as a share of the largest.
SHARES = {"mixed_float16": 0.016, "mixed_bfloat16": 0.125}


def assert_agrees(model, share):
    stored, _ = read_arrays(find_file(model.preset, CHECK))
    # Numbers from 0 to 1 are stored for networks of standardised images too, whose own `predict` refuses them.
    outputs = keras.Model.predict_on_batch(model, stored["images"])
    for name in stored.keys() - {"images"}:
        half = np.asarray(outputs[name], np.float32)
        assert np.isfinite(half).all()
        assert np.abs(half - stored[name]).max() <= share * np.abs(stored[name]).max()


@pytest.mark.parametrize("policy", SHARES)
def test_a_preset_loads_in_half_precision_with_nearly_the_stored_outputs(zoo, policy):
    with dtype_policy(policy):
        model = capszoo.load("tiny_mnist")
    assert policy == f"mixed_{model.compute_dtype}"
    assert_agrees(model, SHARES[policy])


@pytest.mark.parametrize("wrong", [1.05, float("nan")])
def test_half_precision_is_no_excuse_for_other_outputs(zoo, wrong):
    with dtype_policy("mixed_float16"):
        model = capszoo.load("tiny_mnist")
    path = zoo / CHECK
    arrays, metadata = read_arrays(path)
    write_arrays(path, arrays | {"scores": arrays["scores"] * np.float32(wrong)}, metadata)
    with pytest.raises(IntegrityError, match=r'^tiny_mnist: scores .*set_dtype_policy\("float32"\).*$'):
        check_behaviour("tiny_mnist", model, path)


@pytest.mark.slow
@pytest.mark.parametrize("name", capszoo.list_models(pretrained=True))
def test_every_preset_loads_in_half_precision_or_says_what_to_do(name):
    with dtype_policy("mixed_float16"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            model, refusal = capszoo.load(name), None
        except IntegrityError as error:
            model, refusal = None, str(error)
    if refusal is None:
        assert_agrees(model, SHARES["mixed_float16"])
    else:
        assert 'set_dtype_policy("float32")' in refusal
        assert "\n" not in refusal
