"""Several steps of training in one call under JAX: an accelerator does not wait for the host between them."""

import itertools
from collections.abc import Iterable, Iterator

import jax
import keras
import numpy as np
from jax import lax
from jax import numpy as jnp

MOST = 50
# Of examples that lie on the device for one call. Those of the next are made, and sent, while it computes.
BYTES = 2**27


class SeveralSteps:
    """Takes the steps of Keras' `train_on_batch` with a compiled `model`, many of them in one call.

    where:
      examples: inputs and targets of one step, as those of all others are.

    A call is of at most 50 steps and of 128 MB of examples. A CPU computes a step no faster so: XLA's convolutions have
    one thread there inside a loop.
    """

    def __init__(self, model: keras.Model, examples: tuple):
        self.model = model
        size = sum(np.asarray(array).nbytes for array in jax.tree.leaves(examples))
        self.count = max(1, min(MOST, BYTES // size))
        # Donated, or the state of before would lie beside that of after.
        self._taken = jax.jit(self._take, donate_argnums=0)

    def __call__(self, examples: Iterable[tuple]) -> Iterator[dict[str, float]]:
        """Takes a step with each of `examples`, and yields its losses and metrics by name.

        The model's variables have no values until the last step is taken.
        """
        self.model.reset_metrics()
        fresh = _values(self.model.metrics_variables)
        state = [_values(variables) for variables in self._variables]
        examples, before = iter(examples), None
        while several := list(itertools.islice(examples, self.count)):
            state, logs = self._taken(state, fresh, self._stacked(several), len(several))
            # Of the call before this one, since these are not there yet.
            yield from _of_steps(before)
            before = logs, len(several)
        for variables, values in zip(self._variables, state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        yield from _of_steps(before)

    @property
    def _variables(self):
        """What a step changes, but for metrics, in the order of Keras' `train_step`."""
        return (
            self.model.trainable_variables,
            self.model.non_trainable_variables,
            self.model.optimizer.variables,
        )

    def _stacked(self, several):
        """Examples of several steps as arrays `[count, ...]`: one shape, so that one form is compiled."""
        padded = several + several[-1:] * (self.count - len(several))
        return jax.tree.map(lambda *arrays: np.stack(arrays), *padded)

    def _take(self, state, fresh, examples, number):
        """The state after the first `number` of the steps, and their logs `[count]` by name."""

        def step(place, state):
            inputs, targets = jax.tree.map(lambda array: array[place], examples)
            logs, (*state, _) = self.model.train_step((*state, fresh), (inputs, targets, None))
            return logs, state

        def next_step(place, carried):
            state, logs = carried
            now, after = step(place, state)
            return after, {name: logs[name].at[place].set(value) for name, value in now.items()}

        logs, _ = jax.eval_shape(lambda: step(0, state))
        return lax.fori_loop(0, number, next_step, (state, {name: jnp.zeros(self.count) for name in logs}))


def _values(variables):
    return [variable.value for variable in variables]


def _of_steps(call):
    """The logs of each step of a call, which are waited for."""
    if call is None:
        return
    logs, number = call
    logs = {name: np.asarray(values) for name, values in logs.items()}
    for place in range(number):
        yield {name: float(values[place]) for name, values in logs.items()}
