"""Training by several processes or devices: which part of each batch a process computes, and which one writes.

Every device has all weights and a share of each batch, and gradients are those of the whole batch: on JAX by Keras' own
`keras.distribution`, on TensorFlow by `tf.distribute`, there in one process. Batches are pure functions of (seed,
step), so that every process makes the batch and takes its share; only the first process validates, logs and writes.
"""

import contextlib
import dataclasses
import os

import keras
import numpy as np

from capszoo.config import ConfigError

# What Keras reads: where the first process listens, how many there are, and which of them this one is.
ADDRESSES, COUNT, INDEX = (
    f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
)
# Bytes of an error that processes tell each other.
MESSAGE = 1000


@dataclasses.dataclass(frozen=True)
class Processes:
    """All processes that train together, as one of them sees them.

    where:
      index: of this process, from 0.
      count: how many there are.
      devices: how many devices they have together.
      replicas: the `Replicas` of TensorFlow where its devices are several.
    """

    index: int = 0
    count: int = 1
    devices: int = 1
    replicas: object = None

    @property
    def first(self):
        """Whether this process is the one that validates, logs and writes."""
        return self.index == 0

    @contextlib.contextmanager
    def together(self):
        """Inside, models are made and trained on all devices; outside, on one of this process."""
        if self.replicas:
            with self.replicas.scope():
                yield
        elif self.devices > 1:
            with keras.distribution.DataParallel(auto_shard_dataset=False).scope():
                yield
        else:
            yield

    def prepare(self, objective):
        """Readies an objective that was made inside `together` for training."""
        if self.replicas:
            self.replicas.prepare(objective)

    def adam(self, *arguments, **keywords):
        """Keras' Adam, whose steps do not depend on the number of devices."""
        if self.replicas:
            from capszoo.training.replicas import AdamOfReplicas

            return AdamOfReplicas(*arguments, **keywords)
        return keras.optimizers.Adam(*arguments, **keywords)

    def train_on_batch(self, model, inputs, targets):
        """One step on this process's share of a batch; losses and metrics by name."""
        if self.replicas:
            logs = self.replicas.train_on_batch(model, inputs, targets)
        else:
            with self.together():
                logs = model.train_on_batch(inputs, targets, return_dict=True)
        return {name: float(value) for name, value in logs.items()}

    def check_batch(self, size):
        """Errors: `ConfigError` for a batch that does not divide into equal parts for all devices."""
        if size % self.devices:
            raise ConfigError(
                f"train.batch_size: must be a multiple of the {self.devices} devices. Received: {size}"
            )

    def share(self, batch):
        """The part of a batch that this process computes: equal parts of all arrays, in the order of the processes."""
        parts = lambda array: np.split(array, self.count)  # noqa: E731
        return keras.tree.map_structure(lambda array: parts(array)[self.index], batch)

    def wait(self, reason):
        """Waits until every process is here, for the same `reason`."""
        if self.count > 1:
            from jax.experimental import multihost_utils

            multihost_utils.sync_global_devices(reason)

    def agreed(self, number):
        """The first process's `number`, in every process; what the others give does not matter."""
        if self.count == 1:
            return number
        # As two integers: JAX would round what has 64 bits.
        parts = np.array([number or 0.0], "float64").view("uint32")
        return _of_first(parts).view("float64").item()

    def by_first(self, function, *arguments):
        """What `function` returns in the first process, which alone calls it; None in the others.

        They wait for it, so that its error ends all of them at once.
        Errors: in the first process those of `function`; `ConfigError` in the others, which says the same.
        """
        if self.count == 1:
            return function(*arguments)
        result = error = None
        if self.first:
            try:
                result = function(*arguments)
            except Exception as caught:
                error = caught
        text = f"{type(error).__name__}: {error}" if error else ""
        padded = np.frombuffer(text.encode()[:MESSAGE].ljust(MESSAGE), "uint8")
        said = _of_first(padded).tobytes().decode(errors="ignore").strip()
        if error:
            raise error
        if said:
            raise ConfigError(f"the first process ended with {said}")
        return result


def _of_first(array):
    """The first process's array, in every process."""
    from jax.experimental import multihost_utils

    # It sums, which makes larger integers of small ones.
    return np.asarray(multihost_utils.broadcast_one_to_all(array)).astype(array.dtype)


def joined() -> Processes:
    """This process among those that the environment names, or alone.

    Several processes are named by `KERAS_DISTRIBUTION_JOB_ADDRESSES`, `_NUM_PROCESSES` and `_PROCESS_ID`, which
    `keras.distribution.initialize` reads; it returns when all of them are there. Without these, a process uses all of
    its own devices: under TensorFlow all GPUs, or all logical CPUs where there are none. Must come before anything is
    computed.

    Errors: `ConfigError` where several processes are named and the backend is not JAX, and naming the variable that is
    missing or wrong.
    """
    named = _named()
    if keras.backend.backend() != "jax":
        if named:
            raise ConfigError(f"{COUNT}: training by several processes needs KERAS_BACKEND=jax.")
        return _of_tensorflow() if keras.backend.backend() == "tensorflow" else Processes()
    import jax

    if named and not jax.distributed.is_initialized():
        # It would take SIGTERM for a notice to whoever asks for it, and nobody does: no process would ever end by one.
        jax.config.update("jax_enable_preemption_service", False)
        keras.distribution.initialize()
    return Processes(jax.process_index(), jax.process_count(), jax.device_count())


def _named():
    """Whether the environment names several processes; JAX finds out what a cluster of its own kinds leaves open."""
    given = {name: os.environ[name] for name in (ADDRESSES, COUNT, INDEX) if name in os.environ}
    if not given:
        return False
    if COUNT not in given:
        raise ConfigError(f"{COUNT}: how many processes there are is needed beside {', '.join(given)}.")
    for name, least in ((COUNT, 1), (INDEX, 0)):
        if name in given and not (given[name].isdecimal() and int(given[name]) >= least):
            raise ConfigError(
                f"{name}: a number of processes, or of this one, is needed. Received: {given[name]!r}"
            )
    if INDEX in given and int(given[INDEX]) >= int(given[COUNT]):
        raise ConfigError(f"{INDEX}: must be less than {given[COUNT]}, {COUNT}. Received: {given[INDEX]!r}")
    first = given.get(ADDRESSES, "host:0").split(",")[0]
    if not first.rpartition(":")[2].isdecimal():
        raise ConfigError(
            f"{ADDRESSES}: HOST:PORT of the first process is needed. Received: {given[ADDRESSES]!r}"
        )
    return True


def _of_tensorflow():
    """This process with all of TensorFlow's devices."""
    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if len(devices) == 1:
        return Processes()
    from capszoo.training.replicas import Replicas

    return Processes(devices=len(devices), replicas=Replicas([device.name for device in devices]))
