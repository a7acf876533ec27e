"""The one loop over routing iterations that every routing algorithm shares."""

import keras
from keras import ops

from capszoo.routing.tracing import compiled


class Routing(keras.layers.Layer):
    """Routes votes of children to parents by an iterative procedure.

        state = start(votes, activations)                    # iteration 0: with most, uniform coefficients
        repeat for t = 1 .. num_iterations - 1:
            state = step(state, votes, activations, t)
        poses, activations = finish(state, votes, activations)

    A subclass gives the three hooks and holds its own parameters. `state` is a flat dict of tensors whose shapes do
    not change from step to step; `state["coefficients"]` is the share of each child routed to each parent,
    `[B, ..., I, O]`.

    where:
      votes: `[B, ..., I, O, D]`, each child's prediction of each parent's pose.
      activations: `[B, ..., I]` activations of the children, or None where the algorithm needs none.
      num_iterations: how often coefficients are computed, the uniform ones of iteration 0 included; the learned
        routings, kernel and LSTM, do not count those and begin with an update. An int unrolls the loop. A scalar int32
        tensor, given at the call, makes it a loop of the graph, so that one exported model serves any count.
      logits: whether the logits of the parents' activations are returned in place of activations, for a layer that
        normalises them first.

    Returns `(poses, activations)`: parent poses `[B, ..., O, D]` and activations `[B, ..., O]`; with
    `return_history=True` also the coefficients of every iteration, `[T, B, ..., I, O]`, with "last" those of the last
    one, `[1, B, ..., I, O]`.

    `positions_last=True` takes votes `[I, O, D, B, ...]` and activations `[I, B, ...]`, as layers of matrix capsules
    make them, and returns all results that way, `[O, D, B, ...]`, `[O, B, ...]` and `[T, I, O, B, ...]`.

    On the TensorFlow backend the whole procedure is one `tf.function`, but where a layer has it done without votes,
    see `fused` and `without_votes`. It computes in float32 under every dtype
    policy: agreement adds up over thousands of children.

    Errors: `ValueError` for a count below one, for a history of a tensor count, and for other parents than weights were
    made for.
    Source: Faria 2019, Algorithm 1, generalised to all routings of the zoo.
    """

    logits = False
    parent_count = None

    def __init__(self, num_iterations=3, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        if not isinstance(num_iterations, int) or num_iterations < 1:
            raise ValueError(f"num_iterations must be an int of at least 1. Received: {num_iterations!r}")
        self.num_iterations = num_iterations
        self._procedure = None

    def add_weight(self, *arguments, **keywords):
        """As in Keras; but a weight is never rounded where it is read, in a layer of half precision neither."""
        return super().add_weight(*arguments, autocast=False, **keywords)

    def require_activations(self, activations, expected):
        """For algorithms that need those of the children, `[B, ..., I]`; with positions last `[I, B, ...]`.

        where:
          expected: their shape, as the votes have it; None for a size that is not known.

        Errors: `ValueError` where there are none, and for ones of another shape.
        """
        if activations is None:
            raise ValueError(f"{type(self).__name__} needs the children's activations. Received: None")
        received = tuple(activations.shape)
        if len(received) != len(expected) or any(
            size != other and None not in (size, other)
            for size, other in zip(received, expected, strict=True)
        ):
            raise ValueError(f"activations must have the shape {tuple(expected)}. Received: {received}")

    def require_parents(self, received):
        """Errors: `ValueError` for another number of parents than weights were made for: they would be broadcast."""
        if self.parent_count not in (None, received):
            raise ValueError(
                f"{type(self).__name__} has been built for {self.parent_count} parents. Received: votes for {received}"
            )

    def start(self, votes, activations):
        """The state of iteration 0."""
        raise NotImplementedError

    def step(self, state, votes, activations, iteration):
        """The state after one more iteration; `iteration` counts from 1 and may be a tensor."""
        raise NotImplementedError

    def finish(self, state, votes, activations):
        """Parent poses and activations out of the last state."""
        raise NotImplementedError

    @property
    def compilable(self):
        """Whether there is a compiled form: `fused`, or one without votes."""
        return self.fusible

    @property
    def fusible(self):
        """Whether `fused` is there."""
        return False

    def fused(self, connections, count):
        """The routing from poses to parents in one compiled step, see `capszoo.routing.cpu`.

        where:
          connections: who sees whom, `capszoo.routing.connections.Connections`.
          count: iterations.

        Returns `route(poses[B, C, 16], activations[B, C], matrices[M, width, O, width])`, which returns poses
        `[B, P, O, 16]` and activations `[B, P, O]`. A pose is a matrix listed row by row, its width 4, or a vector,
        its width 16.
        """
        raise NotImplementedError

    @property
    def routes_by_image(self):
        """Whether `by_image` is there."""
        return False

    def by_image(self, connections, count):
        """The same as `fused`, as a graph that routes one image after the other.

        It runs wherever a model goes: in servers, on phones, under XLA.
        """
        raise NotImplementedError

    def without_votes(self, count):
        """The routing of dense vector capsules from poses to parents, where it needs no votes; else None.

        where:
          count: iterations, an int of at least 1 or a tensor.

        Returns `route(children[B, I, D], matrices[I, D, O, E])`, in this layer's compute dtype, which returns poses
        `[B, O, E]` and the coefficients `[B, I, O]` of the last iteration.
        """
        return None

    def call(self, votes, activations=None, num_iterations=None, return_history=False, positions_last=False):
        self.require_parents(votes.shape[1 if positions_last else -2])
        if not positions_last:
            return self.routed(votes, activations, num_iterations, return_history)
        votes = ops.moveaxis(votes, (0, 1, 2), (-3, -2, -1))
        activations = activations if activations is None else ops.moveaxis(activations, 0, -1)
        poses, activations, *history = self.routed(votes, activations, num_iterations, return_history)
        poses, activations = ops.moveaxis(poses, (-2, -1), (0, 1)), ops.moveaxis(activations, -1, 0)
        return (poses, activations, *(ops.moveaxis(item, (-2, -1), (1, 2)) for item in history))

    def routed(self, votes, activations, num_iterations, return_history):
        """What `call` returns for votes whose positions do not come last."""
        count = iteration_count(self.num_iterations if num_iterations is None else num_iterations)
        if return_history is True and not isinstance(count, int):
            raise ValueError("return_history=True needs num_iterations as an int. Received a tensor.")
        if self._procedure is None:
            self._procedure = compiled(self._route)
        return self._procedure(votes, activations, count, return_history)

    def _route(self, votes, activations, count, return_history):
        state = self.start(votes, activations)
        if isinstance(count, int):
            history = [state["coefficients"]]
            for iteration in range(1, count):
                state = self.step(state, votes, activations, iteration)
                history.append(state["coefficients"])
        else:
            state = self._loop(state, votes, activations, count)
        if return_history == "last":
            history = [state["coefficients"]]
        result = self.finish(state, votes, activations)
        return (*result, ops.stack(history)) if return_history else result

    def _loop(self, state, votes, activations, count):
        names = sorted(state)

        def body(iteration, *values):
            after = self.step(dict(zip(names, values, strict=True)), votes, activations, iteration)
            return (iteration + 1, *(after[name] for name in names))

        first = ops.convert_to_tensor(1, dtype="int32")
        count = ops.cast(count, "int32")
        values = ops.while_loop(
            lambda iteration, *_: iteration < count, body, (first, *(state[name] for name in names))
        )
        return dict(zip(names, values[1:], strict=True))

    def get_build_config(self):
        # The layer that makes the votes builds its routing, so that weights lie under that layer's name.
        return None

    def get_config(self):
        return {**super().get_config(), "num_iterations": self.num_iterations}


def as_tensors(weights):
    """`weights` as arguments of a function that has a gradient of its own, which depends on its arguments only.

    Where functions of TensorFlow run eagerly a variable is no such argument: its gradient would be lost.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if tf.executing_eagerly():
            return [ops.copy(weight) for weight in weights]
    return [ops.convert_to_tensor(weight) for weight in weights]


def iteration_count(count):
    """`count`, an int or a tensor of one integer, checked; Keras makes tensors of NumPy's integers.

    Errors: `ValueError` below one and for anything else; in a graph of TensorFlow, unless XLA compiles it,
    `tf.errors.InvalidArgumentError` where the tensor turns out to be below one.
    """
    if isinstance(count, int):
        if count < 1:
            raise ValueError(f"num_iterations must be at least 1. Received: {count}")
        return count
    whole = ops.is_tensor(count) and "int" in keras.backend.standardize_dtype(count.dtype)
    if not whole or len(count.shape):
        raise ValueError(f"num_iterations must be an int or a tensor of one integer. Received: {count!r}")
    return _checked(count)


def _checked(count):
    """The tensor `count`; it is refused where its value is known and below one, now or when the graph runs."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            refusal = tf.debugging.Assert(count >= 1, ["num_iterations must be at least 1. Received:", count])
            with tf.control_dependencies([refusal]):
                return tf.identity(count)
    try:
        value = int(count)
    except TypeError:  # Without a value yet, as where JAX traces.
        return count
    iteration_count(value)
    return count
