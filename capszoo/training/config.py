"""The `train` section of a recipe."""

import dataclasses
import math
import typing

from capszoo.config import ConfigError

# Of MNIST these are years; a number above is a slip of the keyboard.
MAX_EPOCHS = 100_000
# Beyond them float32 makes of an average's momentum 1, and of a bound on gradients something infinite.
MAX_AVERAGE, MAX_CLIP = 0.999999, 1e30


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How a model is trained. Every field can be overridden as `train.<field>=<value>`.

    where:
      epochs: passes over the training split, from 1 to 100,000.
      batch_size: images per step; the last incomplete batch of an epoch is left out.
      images: number of training images that are used, drawn from the training split by the seed; None uses all.
      seed: everything random follows from it: initial weights, order, augmentation; in [0, 2^32).
      start_from: what to begin with: a preset, the folder of a run or a file of weights, wherever it has one of the
        model's in its shape. Class capsules that were trained on other classes than the data's are not taken over;
        those of a file are, since it does not name its classes. None begins with random weights, or in a recipe with
        stages with those of the stage before.
      freeze: a stage of the network; the layers below it learn nothing.
      pretrained_rate: what the learning rate of weights that come from `start_from` is multiplied with, in (0, 1];
        weight decay stays that of the full rate.
      schedule: how the learning rate falls; "exponential", with
        rate(step) = max(minimum, learning_rate * decay_rate ** (step / decay_steps)), or "cosine", with
        rate(step) = minimum + (learning_rate - minimum)
            * (1 + cos(pi * (step - warmup_steps) / (steps of the run - warmup_steps))) / 2.
        The minimum is at most the rate.
      learning_rate, decay_rate, decay_steps, minimum_learning_rate: of the schedule; "cosine" has no decay.
      warmup_steps: the rate of "cosine" first rises linearly from 0 in so many steps, in a shorter run in all but the
        last.
      weight_decay: each step takes this share of the learning rate away from every weight of two or more axes (AdamW).
      average: momentum of an exponential average of the weights, in (0, 0.999999]; what is validated and kept is then
        the average, with batch statistics of its own, see `measure_normalisations`. None keeps the weights themselves.
      mixup: alpha of mixup, see `capszoo.training.mixup`; 0 trains on the images as they are. It needs scores to train.
        An accuracy of training then counts an image as right whose two classes have the two highest scores.
      gradient_clip: bound on the global gradient norm, in (0, 1e30]; None leaves gradients alone.
      precision: Keras dtype policy. Routing stays in float32 whatever it says.
      xla: compile the training step with XLA.
      checkpoint_steps: steps between checkpoints; what a killed run can lose.
      stop_at_error: the run ends with the first epoch whose error is at most this share, and keeps the weights of that
        epoch; None trains all epochs. Schedules still count the planned epochs.
      stop_split: whose error that is. "test" is for models that are to be compared at equal test errors (Hinton et
        al. 2018, Table 2); it needs stop_at_error, and otherwise no test image is ever looked at.
    """

    epochs: int = 10
    batch_size: int = 128
    images: int | None = None
    seed: int = 0
    start_from: str | None = None
    freeze: str | None = None
    pretrained_rate: float = 1.0
    schedule: typing.Literal["exponential", "cosine"] = "exponential"
    learning_rate: float = 1e-3
    decay_rate: float = 0.96
    decay_steps: int = 2000
    minimum_learning_rate: float = 1e-6
    warmup_steps: int = 0
    weight_decay: float = 0.0
    average: float | None = None
    mixup: float = 0.0
    gradient_clip: float | None = 10.0
    precision: typing.Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    xla: bool = False
    checkpoint_steps: int = 200
    stop_at_error: float | None = None
    stop_split: typing.Literal["validation", "test"] = "validation"

    def __post_init__(self):
        for name in ("epochs", "batch_size", "decay_steps", "checkpoint_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name}: must be at least 1. Received: {getattr(self, name)}")
        if self.epochs > MAX_EPOCHS:
            raise ConfigError(f"train.epochs: must be at most {MAX_EPOCHS:,}. Received: {self.epochs}")
        if self.images is not None and self.images < 1:
            raise ConfigError(f"train.images: must be at least 1 or null. Received: {self.images}")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"train.seed: must be in [0, 2^32). Received: {self.seed}")
        for name in ("learning_rate", "decay_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(
                    f"train.{name}: must be positive and finite. Received: {getattr(self, name)}"
                )
        for name in ("minimum_learning_rate", "weight_decay", "warmup_steps", "mixup"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"train.{name}: must be at least 0. Received: {getattr(self, name)}")
        if self.warmup_steps and self.schedule != "cosine":
            raise ConfigError(f"train.warmup_steps: only 'cosine' warms up. Received: {self.schedule!r}")
        if not 0 < self.pretrained_rate <= 1:
            raise ConfigError(f"train.pretrained_rate: must be in (0, 1]. Received: {self.pretrained_rate}")
        if self.average is not None and not 0 < self.average <= MAX_AVERAGE:
            raise ConfigError(
                f"train.average: must be in (0, {MAX_AVERAGE}] or null. Received: {self.average}"
            )
        if self.gradient_clip is not None and not 0 < self.gradient_clip <= MAX_CLIP:
            raise ConfigError(
                f"train.gradient_clip: must be in (0, {MAX_CLIP:g}] or null. Received: {self.gradient_clip}"
            )
        if self.stop_at_error is not None and not 0 <= self.stop_at_error <= 1:
            raise ConfigError(
                f"train.stop_at_error: must be a share in [0, 1] or null. Received: {self.stop_at_error}"
            )
        if self.stop_split == "test" and self.stop_at_error is None:
            raise ConfigError("train.stop_split: 'test' needs train.stop_at_error. Received: null")

    def require_falling_rate(self):
        """Errors: `ConfigError` for a minimum above the rate. Runs that have begun with one go on."""
        if self.minimum_learning_rate > self.learning_rate:
            raise ConfigError(
                f"train.minimum_learning_rate: must be at most the learning rate, {self.learning_rate}. "
                f"Received: {self.minimum_learning_rate}"
            )

    @property
    def ignored(self) -> set[str]:
        """The fields that nothing depends on, beside the others' values."""
        return {"decay_rate", "decay_steps"} if self.schedule == "cosine" else set()

    @property
    def adam(self) -> dict:
        """What Keras' Adam is made with, beside the learning rate."""
        return {
            "epsilon": 1e-8,
            "global_clipnorm": self.gradient_clip,
            "weight_decay": self.weight_decay or None,
            "use_ema": self.average is not None,
            "ema_momentum": self.average or 0.99,
        }
