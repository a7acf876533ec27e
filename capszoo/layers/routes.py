"""What is common to the layers whose votes a routing reconciles."""

import abc

import keras

from capszoo.layers.outputs import float32_symbols


class Routes(abc.ABC):
    """A layer of capsules with a routing: the contract that drawings and benchmarks know such layers by.

    where:
      routing: a `capszoo.routing.Routing`, an argument of the layer, and of no other one.
      posed: whether parents have poses, which votes predict.

    The layer takes `num_iterations`, an int or a tensor, in place of the routing's own count, and with
    `return_history=True` it also returns coefficients `[T, B, ..., I, O]`, after its parents.
    """

    posed = True

    @abc.abstractmethod
    def parent_shapes(self, batch):
        """Shapes of the float32 tensors that a call returns for `batch` images, in a structure like theirs."""

    @abc.abstractmethod
    def votes_of(self, children):
        """Votes `[B, ..., I, O, D]` of children as the layer takes them; a matrix is listed column by column."""

    @property
    def child_types(self):
        """Types of the children I that coefficients are of, the fastest axis; without a grid each child is a type."""
        shape = keras.tree.flatten(self.input)[0].shape
        return shape[3] if len(shape) in (5, 6) else shape[1]

    def votes_at(self, children, iteration):
        """What `votes_of` returns, as the routing reads it in one iteration, counted from 1.

        Votes stay the same in all layers but those that are routed at the same time.
        """
        return self.votes_of(children)

    def centres_of(self, children, iteration):
        """Poses of the parents where their votes lie, after so many iterations: as the layer returns them."""
        parents = self(children, num_iterations=iteration)
        # Poses with activations, or poses alone.
        return parents[0] if isinstance(parents, list | tuple) else parents

    def take_only(self, shapes):
        """From now on children of other shapes than these are refused, but for the number of images."""
        self.input_spec = keras.tree.map_shape_structure(
            lambda shape: keras.InputSpec(shape=(None, *shape[1:])), shapes
        )

    def require_own_routing(self):
        """Errors: `ValueError` for a routing that is built already, be it by another layer."""
        if self.routing.built:
            raise ValueError(f"a routing belongs to one layer; {self.routing!r} is built already.")

    def build_routing(self, votes_shape, neighbourhood=None):
        """Builds the routing for votes of that shape.

        where:
          neighbourhood: which children a parent sees, of a routing that must know; None where all parents see all.

        Errors: see `require_own_routing`.
        """
        self.require_own_routing()
        if neighbourhood is not None:
            self.routing.neighbourhood = neighbourhood
        self.routing.build(votes_shape)

    def compute_output_shape(self, children_shape):
        if not self.built:
            self.build(children_shape)
        first = children_shape
        while not isinstance(first[0], int | None):
            first = first[0]
        return self.parent_shapes(first[0])

    def compute_output_spec(self, children, num_iterations=None, return_history=False, **keywords):
        if num_iterations is not None or return_history:
            return keras.Operation.compute_output_spec(
                self, children, num_iterations, return_history, **keywords
            )
        # Known without tracing a routing, which takes most of the time in which a network is made.
        shapes = self.compute_output_shape(keras.tree.map_structure(lambda tensor: tensor.shape, children))
        return float32_symbols(shapes)

    def get_config(self):
        return {**super().get_config(), "routing": keras.saving.serialize_keras_object(self.routing)}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["routing"] = keras.saving.deserialize_keras_object(config["routing"])
        return cls(**config)


def routed_layers(model):
    """The layers of `model` that route, in the order of the data."""
    return [layer for layer in model.layers if isinstance(layer, Routes)]
