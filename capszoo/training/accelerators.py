"""The GPUs and TPUs that the backend computes on."""

import keras


def accelerators() -> list[str]:
    """Their names; none where the backend computes on CPUs.

    Under JAX those of all processes that train together, else this process's GPUs.
    """
    if keras.backend.backend() == "jax":
        import jax

        return [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    if keras.backend.backend() != "tensorflow":
        return []
    import tensorflow as tf

    # Not those that were hidden from it.
    devices = tf.config.get_visible_devices("GPU")
    return [tf.config.experimental.get_device_details(device).get("device_name", "GPU") for device in devices]
