"""What is compared with published outputs is computed with all digits, whatever accelerators do by default."""

import keras
import pytest
import tensorflow as tf

from capszoo.zoo.full_precision import full_precision

execution = tf.config.experimental


@pytest.mark.parametrize("default", [True, False])
def test_tensorflow_multiplies_in_float32_inside_and_as_before_after(default):
    before = execution.tensor_float_32_execution_enabled()
    execution.enable_tensor_float_32_execution(default)
    try:
        with full_precision():
            assert not execution.tensor_float_32_execution_enabled()
        assert execution.tensor_float_32_execution_enabled() == default
    finally:
        execution.enable_tensor_float_32_execution(before)


@pytest.mark.parametrize(("device", "inside"), [("gpu", "float32"), ("tpu", "float32"), ("cpu", None)])
def test_jax_does_so_on_accelerators(device, inside, monkeypatch):
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    with full_precision():
        assert jax.config.jax_default_matmul_precision == inside
    assert jax.config.jax_default_matmul_precision is None


def test_the_check_of_loaded_weights_is_made_so(tiny_model, tmp_path, monkeypatch):
    import numpy as np

    from capszoo.training.weight_files import write_arrays
    from capszoo.zoo import loading

    images = np.zeros((1, 28, 28, 1), "float32")
    outputs = tiny_model.predict_on_batch(images)
    write_arrays(tmp_path / "check.safetensors", {"images": images, "scores": outputs["scores"]})
    seen = []

    def predict(images):
        seen.append(execution.tensor_float_32_execution_enabled())
        return outputs

    monkeypatch.setattr(tiny_model, "predict_on_batch", predict)
    loading.check_behaviour("tiny", tiny_model, tmp_path / "check.safetensors")
    assert seen == [False]
