"""Replicas of a model on several devices of one process under TensorFlow: `tf.distribute.MirroredStrategy`."""

import keras
import numpy as np
import tensorflow as tf

from capszoo.config import ConfigError
from capszoo.training.normalisations import batch_normalisations


class Replicas:
    """One replica of a model for each device; each computes its part of every batch.

    where:
      devices: names of TensorFlow's logical devices.
    """

    def __init__(self, devices):
        self.strategy = tf.distribute.MirroredStrategy(devices)
        self.count = self.strategy.num_replicas_in_sync

    def scope(self):
        """Inside, models are made on all devices."""
        return self.strategy.scope()

    def prepare(self, objective):
        """Batch normalisations take means and variances of the batch, not of each replica's part.

        Errors: `ConfigError` for layers and losses `of_whole_batch`, which would each see a part of it.
        """
        parts = [*objective.model.layers, *objective.losses.values()]
        whole = [part.name for part in parts if getattr(part, "of_whole_batch", False)]
        if whole:
            raise ConfigError(
                f"{', '.join(whole)} look at the whole batch, and each device of TensorFlow has a part of it. Train on "
                "one device, or on several with KERAS_BACKEND=jax."
            )
        for layer in batch_normalisations(objective.model):
            layer.synchronized = True

    def train_on_batch(self, model, inputs, targets):
        """As `model.train_on_batch`, which would give the whole batch to every replica: losses and metrics by name."""
        examples = keras.tree.map_structure(self._parts, (inputs, targets))
        model.make_train_function()
        model.reset_metrics()
        return model.train_function(iter([(*examples, None)]))

    def _parts(self, array):
        """Equal parts of an array, one for each replica."""
        parts = np.split(np.asarray(array), self.count)
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )


class AdamOfReplicas(keras.optimizers.Adam):
    """Adam that bounds the gradient of the batch, where Keras bounds that of each replica's part."""

    def _clip_gradients(self, grads):
        context = tf.distribute.get_replica_context()
        known = [gradient for gradient in grads if gradient is not None]
        totals = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, known))
        bounded = super()._clip_gradients([None if g is None else next(totals) for g in grads])
        # Keras sums over replicas once more before it applies them.
        return [None if g is None else g / context.num_replicas_in_sync for g in bounded]
