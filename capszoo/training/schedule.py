"""How the learning rate falls during a run."""

import keras


@keras.saving.register_keras_serializable(package="capszoo")
class FlooredDecay(keras.optimizers.schedules.LearningRateSchedule):
    """rate(step) = max(minimum, initial * decay_rate ** (step / decay_steps)).

    Source: the authors' code of Sabour et al. 2017 (0.001, 0.96, 2000, 1e-6).
    """

    def __init__(self, initial, decay_rate, decay_steps, minimum):
        self.initial, self.decay_rate, self.decay_steps, self.minimum = (
            initial,
            decay_rate,
            decay_steps,
            minimum,
        )

    def __call__(self, step):
        exponent = keras.ops.cast(step, "float32") / self.decay_steps
        return keras.ops.maximum(self.minimum, self.initial * self.decay_rate**exponent)

    def get_config(self):
        return dict(vars(self))


def learning_rate_schedule(config, steps):
    """The learning rate of a run of so many steps, as a function of the step; see `TrainConfig`."""
    if config.schedule == "exponential":
        return FlooredDecay(
            config.learning_rate, config.decay_rate, config.decay_steps, config.minimum_learning_rate
        )
    warmup = min(config.warmup_steps, steps - 1)
    return keras.optimizers.schedules.CosineDecay(
        0.0 if warmup else config.learning_rate,
        steps - warmup,
        alpha=min(1.0, config.minimum_learning_rate / config.learning_rate),
        warmup_target=config.learning_rate if warmup else None,
        warmup_steps=warmup,
    )
