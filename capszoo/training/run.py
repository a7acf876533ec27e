"""Training: from a recipe to weights, in a folder from which a killed run goes on as if nothing had happened.

A recipe may have stages: each begins with the best weights of the one before, and the sections of the recipe itself are
the last. The folder of a run holds
  recipe.yaml              every value the run was started with,
  checkpoint.safetensors   weights, optimiser state and step, replaced every `checkpoint_steps` steps,
  best.safetensors         weights with the lowest validation error, or those at which `train.stop_at_error` ended it;
                           the last ones where the data have no validation split,
  log.jsonl                one line per checkpoint and per epoch,
  tensorboard/             the same numbers for TensorBoard,
  stages/NAME/             the same of each stage before the last.

Data, augmentation and order are pure functions of (seed, step), so a run that is killed and started again with the
same command ends with the same bits on a CPU. Several processes may train together, see `capszoo.training.processes`.
"""

import collections
import contextlib
import logging
import time
import warnings
from pathlib import Path

import keras
import numpy as np

from capszoo.config import ConfigError
from capszoo.data.pipeline import Batches
from capszoo.data.split import Stream, generator
from capszoo.extras import extra
from capszoo.models.architecture import Classifies
from capszoo.models.freezing import freeze_below, scale_rates
from capszoo.progress import QUIET
from capszoo.training.accelerators import accelerators
from capszoo.training.checking import require_labels, require_options, require_split
from capszoo.training.checkpoint import FILE, Checkpoint
from capszoo.training.claim import claim, of_other_images
from capszoo.training.files import locked, remove_temporary
from capszoo.training.folder import BEST, stage_folder
from capszoo.training.health import TrainingDiverged, check_health, check_memory
from capszoo.training.log import append_record, read_log, truncate_log
from capszoo.training.mixup import mix
from capszoo.training.normalisations import BATCHES, batch_normalisations, measure_normalisations
from capszoo.training.processes import joined
from capszoo.training.schedule import learning_rate_schedule
from capszoo.training.scoring import predict_split, squared_errors, wrong
from capszoo.training.start import Start, start_of_file
from capszoo.training.step import of_any_batch
from capszoo.training.weight_files import WeightsError, save_weights

LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def dtype_policy(name):
    """Layers made inside get the Keras dtype policy `name`."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def train(recipe, directory, progress=QUIET, pause_after=None, find=start_of_file):
    """Trains `recipe`, all its stages, in `directory`, or goes on where a run of the same recipe stopped there.

    `progress` counts steps, in a task for each stage, and says a line for each epoch; see `capszoo.progress`.
    `pause_after` ends the call after so many epochs of the last stage; a later call goes on from there.
    `find` says what `train.start_from` names, a `capszoo.training.start.Start`.
    Returns the record of the last epoch, a dict.
    Errors: `ConfigError` if the folder holds a run of another recipe or one without its recipe, if another process
    trains there, for a batch that does not divide into equal parts for all devices, and for options, of any stage,
    that do not fit the network, the data or each other; `WeightsError` for a run that has lost its weights;
    `TrainingDiverged` for a loss that is not finite, with the last good weights kept.
    """
    directory, processes = Path(directory), joined()
    # Before the folder is this recipe's, and before a stage is trained for nothing.
    if recipe.train.pretrained_rate != 1 and not (recipe.train.start_from or recipe.stages):
        raise ConfigError("train.pretrained_rate: nothing is pretrained without train.start_from.")
    for part in (*map(recipe.at, recipe.stages), recipe):
        processes.check_batch(part.train.batch_size)
        require_options(part)
    with _claimed(recipe, directory, processes):
        progress = progress if processes.first else QUIET
        # A stage that lies behind a checkpoint of the last one has nothing left to do.
        behind = (directory / FILE).exists()
        # Weights that were begun with are needed again to tell which learn more slowly.
        needed = recipe.train.start_from and (not behind or recipe.train.pretrained_rate != 1)
        start = find(recipe.train.start_from) if needed else None
        for stage in recipe.stages:
            folder = stage_folder(directory, stage)
            if not behind:
                with _claimed(recipe.at(stage), folder, processes):
                    _Run(recipe.at(stage), folder, progress, start, processes).finish()
            start = Start(folder / BEST)
        return _Run(recipe, directory, progress, start, processes).finish(pause_after)


@contextlib.contextmanager
def _claimed(recipe, directory, processes):
    """The folder is of `recipe` and of these processes inside; the first of them has seen to that."""
    with contextlib.ExitStack() as held:
        processes.by_first(held.enter_context, _claimed_here(recipe, directory))
        processes.wait(f"the folder {directory} is there")
        yield


@contextlib.contextmanager
def _claimed_here(recipe, directory):
    """The folder is of `recipe` and of this process inside."""
    with locked(directory, f"another process is training in {directory}. Wait, or give another folder."):
        remove_temporary(directory)
        claim(recipe, directory)
        yield


def _epoch_line(record):
    """A finished epoch as a line for people."""
    validation = ""
    if "validation_error" in record:
        best = record["best_validation_error"]
        validation = f"validation error {record['validation_error']:.2%} (best {best:.2%}), "
    speed = f"{record['images_per_second']:.0f} images/s"
    return f"epoch {record['epoch']}: loss {record['loss']:.4f}, {validation}{speed}"


class _Run:
    """One stage of `train`: a model, an optimiser and the step they have reached."""

    def __init__(self, recipe, directory, progress, start, processes):
        self.recipe, self.directory, self.progress = recipe, directory, progress
        self.processes, self.copy = processes, None
        config = recipe.train
        keras.utils.set_random_seed(config.seed)
        with processes.together(), dtype_policy(config.precision):
            self.model = recipe.build()
            if config.freeze:
                freeze_below(self.model, config.freeze)
            self.objective = recipe.objective(self.model)
        processes.prepare(self.objective)
        self.validation = recipe.data.open("validation") if recipe.data.validates else None
        # Whose error can end the run.
        self.deciding = recipe.data.open("test") if config.stop_split == "test" else self.validation
        check_memory(self.model, config.batch_size // processes.count)
        trained_on = recipe.data.open("train")
        for split in (trained_on, self.validation):
            if split is not None:
                require_split(recipe, split)
        self.batches = Batches(trained_on, config.batch_size, config.seed, config.images)
        self.total = config.epochs * self.batches.steps_per_epoch
        with processes.together():
            self._compile(start)
        self.checkpoint = Checkpoint(directory, self.model, self.objective.model)
        self.step, self.best_error, self.stopped = 0, None, False
        resumed = self.checkpoint.path.exists()
        processes.wait("every process has looked for a checkpoint")
        if resumed:
            self._restore()
        else:
            self._start(start)
            self._save()

    def _start(self, start):
        """Gives the model the weights that it begins with, wherever `start` has one in its shape."""
        fresh = [weight.path for weight in self.model.weights]
        if start:
            fresh = start.give(self.recipe, self.model)
            LOGGER.info("starting from %s; random: %s", start.path, ", ".join(fresh) or "nothing")
            if others := start.differences(self.recipe):
                warnings.warn(
                    f"train.start_from: its weights were trained with another {', '.join(others)}, where some may mean "
                    "something else.",
                    stacklevel=2,
                )
        if self.objective.begin:
            self.objective.begin(self.recipe.data.open("train"), fresh)
        self.processes.by_first(self._check_health, not start)

    def _check_health(self, fresh):
        with self._on_one_device() as model:
            health = check_health(self.recipe, model, self._batch_at(0)["images"], fresh)
        said = ", ".join(f"{stage} {value:.3g}" for stage, value in health.items())
        LOGGER.info("activations at the start: %s", said)

    def _compile(self, start):
        config = self.recipe.train
        # Named, since the names in a checkpoint must not depend on what else this process has trained.
        optimizer = self.processes.adam(
            learning_rate_schedule(config, self.total), **config.adam, name="adam"
        )
        variables = self.objective.model.trainable_variables
        optimizer.exclude_from_weight_decay([v for v in variables if len(v.shape) < 2])
        # JAX without jit would run operation by operation; on TensorFlow XLA is a choice.
        jit = keras.backend.backend() == "jax" or config.xla
        self.objective.compile(optimizer, self._batch_at(0), jit)
        if keras.backend.backend() == "tensorflow" and not jit and self.processes.devices == 1:
            of_any_batch(self.objective.model)
        self.several = None
        if keras.backend.backend() == "jax" and self.processes.devices == 1 and accelerators():
            from capszoo.training.several_steps import SeveralSteps

            self.several = SeveralSteps(self.objective.model, self._examples_at(0))
        self.optimizer = self.objective.model.optimizer
        if start and config.pretrained_rate != 1:
            given = start.given(self.recipe, self.model)
            scale_rates(self.objective.model, dict.fromkeys(given, config.pretrained_rate))

    def _batch_at(self, step):
        batch = self.batches.batch_at(step)
        if self.recipe.model.has(Classifies):
            # A label of -1 would be trained as the last class.
            require_labels(self.recipe, batch["labels"])
        return {**batch, "progress": step / self.total}

    def _examples_at(self, step):
        """What the training model is given and asked for in a step."""
        inputs, targets = self.objective.arrange(self._batch_at(step))
        config = self.recipe.train
        if config.mixup:
            inputs, targets = mix(inputs, targets, config.mixup, generator(config.seed, Stream.MIXUP, step))
        return self.processes.share((inputs, targets))

    def _save(self):
        reached = {"step": self.step, "best_error": self.best_error, "stopped": self.stopped}
        images = self.batches.split.fingerprint()
        self.processes.by_first(self.checkpoint.save, {**reached, "images": images})
        self.processes.wait(f"the checkpoint of step {self.step} is written")

    @contextlib.contextmanager
    def _on_one_device(self):
        """The model, with its present weights, on one device of this process inside."""
        if self.processes.devices == 1:
            yield self.model
            return
        if self.copy is None:
            with dtype_policy(self.recipe.train.precision):
                self.copy = self.recipe.build()
            if self.recipe.train.freeze:  # Or frozen normalisations would be measured anew.
                freeze_below(self.copy, self.recipe.train.freeze)
        for variable, weight in zip(self.copy.weights, self.model.weights, strict=True):
            variable.assign(np.asarray(weight))
        yield self.copy

    def _restore(self):
        """Goes on from the checkpoint.

        Errors: `WeightsError` where it cannot be of this run, or its best is gone; `OtherRun` for other images.
        """
        metadata = self.checkpoint.restore()
        self.step, self.best_error = metadata["step"], metadata["best_error"]
        # Absent in checkpoints that are older than `stop_at_error`.
        self.stopped = metadata.get("stopped", False)
        if not 0 <= self.step <= self.total:
            raise WeightsError(f"{self.checkpoint.path} is of step {self.step}; the run has {self.total}.")
        if self.step >= self.batches.steps_per_epoch and not (self.directory / BEST).exists():
            raise WeightsError(
                f"{self.directory / BEST} is gone, the best weights up to step {self.step}. Put it back, or delete the "
                "folder and train again."
            )
        # Absent in older checkpoints.
        images = metadata.get("images")
        if images not in (None, self.batches.split.fingerprint()):
            raise of_other_images(self.directory)
        self.processes.by_first(truncate_log, self.directory, self.step)
        LOGGER.info("going on from step %d of %d", self.step, self.total)

    def finish(self, pause_after=None):
        """Trains to the end, or for `pause_after` epochs, and returns the record of the last epoch."""
        # TensorBoard's own writer: it needs no TensorFlow, so the JAX backend logs too.
        with extra("train"):
            from tensorboard.summary import Writer

        self.writer = self.processes.by_first(Writer, str(self.directory / "tensorboard"))
        self.progress.begin(self.recipe.name, self.total, self.step)
        record, end = None, self.total
        if pause_after is not None:
            end = min(end, pause_after * self.batches.steps_per_epoch)
        while self.step < end and not self.stopped:
            record = self._segment() or record
        if self.writer:
            self.writer.close()
        # A run that was killed within an epoch has records of steps after the last one of an epoch.
        return record or next(each for each in reversed(read_log(self.directory)) if "epoch" in each)

    def _segment(self):
        """Trains up to the next checkpoint or the end of the epoch; returns the epoch's record at its end."""
        per_epoch = self.batches.steps_per_epoch
        epoch_end = (self.step // per_epoch + 1) * per_epoch
        stop = min(self.step + self.recipe.train.checkpoint_steps, epoch_end)
        started = time.perf_counter()
        logs = self._steps(self.step, stop)
        if not all(np.isfinite(np.asarray(v)).all() for v in self.model.trainable_variables):
            raise self._diverged(stop)
        images = (stop - self.step) * self.batches.batch_size
        self.step = stop
        record = {"step": stop, **logs, "images_per_second": images / (time.perf_counter() - started)}
        record["learning_rate"] = float(keras.ops.convert_to_numpy(self.optimizer.learning_rate))
        if stop == epoch_end:
            with self._averaged():
                record |= {"epoch": stop // per_epoch, **self._validate()}
        # The log first: what it says beyond the checkpoint is dropped on the next start, what it lacks stays lost.
        self.processes.by_first(self._log, record)
        self._save()
        if "epoch" not in record:
            return None
        self.progress.say(_epoch_line(record))
        return record

    def _steps(self, first, stop):
        """Trains on the batches of steps [first, stop); returns the means of losses and metrics over them.

        Not by `fit`: that makes a tf.data iterator for every call, whose end can wait a minute
        for its own tuning thread.
        """
        totals = collections.Counter()
        for step, logs in enumerate(self._taken(map(self._examples_at, range(first, stop))), first):
            if not np.isfinite(logs["loss"]):
                raise self._diverged(step + 1)
            totals.update(logs)
            self.progress.advance(1, logs)
        return {name: total / (stop - first) for name, total in totals.items()}

    def _taken(self, examples):
        """Takes a step with each of `examples`; its losses and metrics by name."""
        if self.several:
            return self.several(examples)
        return (self.processes.train_on_batch(self.objective.model, *each) for each in examples)

    def _diverged(self, step):
        return TrainingDiverged(
            f"the loss stopped being finite between steps {self.step} and {step}; the weights of step "
            f"{self.step} are kept in {self.checkpoint.path}. Lower train.learning_rate or train.gradient_clip."
        )

    @contextlib.contextmanager
    def _averaged(self):
        """The model has the average of its weights inside, where `train.average` asks for one."""
        if self.recipe.train.average is None:
            yield
            return
        variables = self.objective.model.variables
        kept = [np.asarray(variable).copy() for variable in variables]
        self.optimizer.finalize_variable_values(self.objective.model.trainable_variables)
        for variable in self.objective.model.trainable_variables:
            # On JAX the average itself, which predicting would give away, is the variable's value now.
            variable.assign(np.array(variable))
        try:
            self._measure_normalisations()
            yield
        finally:
            for variable, value in zip(variables, kept, strict=True):
                variable.assign(value)

    def _measure_normalisations(self):
        """Every process does the same."""
        ours = batch_normalisations(self.model)
        if not ours:
            return
        steps = range(max(0, self.step - BATCHES), self.step)
        with self._on_one_device() as model:
            measure_normalisations(model, (self._batch_at(step)["images"] for step in steps))
            for layer, theirs in zip(ours, batch_normalisations(model), strict=True):
                layer.moving_mean.assign(np.asarray(theirs.moving_mean))
                layer.moving_variance.assign(np.asarray(theirs.moving_variance))

    def _validate(self):
        """Errors, shares; the weights are kept if validation is not worse than before, or if the run ends here.

        Without a validation split nothing is chosen, and the last weights are kept.
        """
        error = None if self.validation is None else self._error(self.validation)
        # Of reconstructions. No later error would be less than one that is NaN.
        if error is not None and not np.isfinite(error):
            raise TrainingDiverged(
                f"the validation error of step {self.step} is {error}; the last checkpoint is kept in "
                f"{self.checkpoint.path}. Lower train.learning_rate or train.gradient_clip."
            )
        record = {} if error is None else {"validation_error": error}
        target = self.recipe.train.stop_at_error
        if target is not None:
            deciding = error
            if self.deciding is not self.validation:
                deciding = record["test_error"] = self._error(self.deciding)
            self.stopped = record["stopped"] = deciding <= target
        # Of equal errors the later one wins: it has seen more of the data.
        if self.stopped or None in (error, self.best_error) or error <= self.best_error:
            self.best_error = error
            self.processes.by_first(self._save_best)
        return record if error is None else record | {"best_validation_error": self.best_error}

    def _save_best(self):
        made = {"backend": keras.backend.backend(), "accelerator": ", ".join(accelerators())}
        about = {"step": self.step, "error": self.best_error, **made}
        save_weights(self.model, self.directory / BEST, metadata=about)

    def _error(self, split):
        """Share of the images that are classified wrongly.

        Where no scores are trained it is the share of the images' squared sum that reconstructions miss: the
        reconstruction loss, divided by that of black pictures. The first process measures it for all.
        """
        return self.processes.agreed(self.processes.by_first(self._measured, split))

    def _measured(self, split):
        with self._on_one_device() as model:
            if self.recipe.model.has(Classifies):
                scores, labels = predict_split(model, split)
                return float(wrong(scores, labels).mean())
            errors, of_black = squared_errors(model, split)
            return float(errors.sum() / of_black.sum())

    def _log(self, record):
        append_record(self.directory, record)
        for key, value in record.items():
            if key != "step":
                self.writer.add_scalar(key, value, self.step)
        self.writer.flush()
