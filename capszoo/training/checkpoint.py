"""Checkpoints: all that a run needs to go on as if it had never stopped."""

import math
from pathlib import Path

import numpy as np

from capszoo.training.weight_files import WeightsError, read_arrays, write_arrays

FILE = "checkpoint.safetensors"


class Checkpoint:
    """The file of a run that holds weights, states of random generators, the optimiser's state, and the step.

    where:
      directory: of the run.
      model: the inference model.
      training: the compiled training model, which shares the layers of `model`.
    """

    def __init__(self, directory, model, training):
        self.path = Path(directory) / FILE
        self.model, self.training = model, training

    def save(self, metadata: dict):
        """Writes the present state and `metadata`, which has the `step`, in place of the last checkpoint."""
        arrays = {name: np.asarray(variable) for name, variable in self._variables().items()}
        write_arrays(self.path, arrays, metadata)

    def restore(self) -> dict:
        """Gives all variables the values of the file, and returns its metadata.

        Errors: `WeightsError` for a file that is damaged or of another model; nothing has changed then.
        """
        arrays, metadata = read_arrays(self.path)
        step, error = metadata.get("step"), metadata.get("best_error", "missing")
        # `bool` is an `int`.
        if type(step) is not int or not isinstance(error, float | int | None):
            raise WeightsError(
                f"{self.path} is no checkpoint: it does not say of which step and error it is."
            )
        values = {}
        for name, variable in self._variables().items():
            # Early checkpoints have no state of the objective.
            if name not in arrays and name.startswith("training/"):
                continue
            if name not in arrays or not _same_shape(arrays[name].shape, variable.shape):
                raise WeightsError(
                    f"{self.path} is no checkpoint of this run: {name} is missing or misshapen."
                )
            # And they hold scalars as arrays of one element.
            values[name] = (variable, arrays[name].reshape(variable.shape))
        for variable, value in values.values():
            variable.assign(value)
        return metadata

    def _variables(self):
        """Every variable by its name in the file."""
        weights = {v.path for v in self.model.weights}
        # Random states go by their place: Keras names them by what else the process has made.
        names = [
            f"model/{v.path}" if v.path in weights else f"random/{i}"
            for i, v in enumerate(self.model.variables)
        ]
        # What only training has: noise of the bound's samples, the generator of the sleep phase.
        known = {id(variable) for variable in self.model.variables}
        others = [v for v in self.training.variables if id(v) not in known]
        optimizer = self.training.optimizer.variables
        names += [f"training/{i}" for i in range(len(others))]
        names += [f"optimizer/{i}/{v.path}" for i, v in enumerate(optimizer)]
        return dict(zip(names, [*self.model.variables, *others, *optimizer], strict=True))


def _same_shape(stored, shape):
    """Whether shapes are equal, or both of one number."""
    return tuple(stored) == tuple(shape) or (math.prod(stored) == 1 and math.prod(shape) == 1)
