"""Products of float32 with all of its digits, which accelerators otherwise round."""

import contextlib

import keras


@contextlib.contextmanager
def full_precision():
    """Inside, what is computed in float32 is so: by default newer GPUs multiply in TF32, and TPUs in bfloat16.

    These have 10 and 7 bits of fraction instead of 23; outputs then differ by more than what tells weights of another
    version. The default is in force again after.
    """
    if keras.backend.backend() == "jax":
        import jax

        # Not on a CPU, where it would only compile everything once more.
        if jax.default_backend() == "cpu":
            yield
            return
        with jax.default_matmul_precision("float32"):
            yield
        return
    import tensorflow as tf

    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
