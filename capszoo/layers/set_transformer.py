"""The set transformer: attention among the elements of a set, whatever their order."""

import math

import keras
from keras import ops

from capszoo.layers.arguments import require_counts


@keras.saving.register_keras_serializable(package="capszoo")
class SetAttention(keras.layers.Layer):
    """Elements of one set look at those of another: the block MAB.

        h = norm(q + softmax(q k' / sqrt(D)) v),   q = X W_q, k = Y W_k, v = Y W_v, in each of `heads` parts
        MAB(X, Y) = norm(h + relu(h W_o))

    where:
      X, Y: `[B, M, F]` and `[B, N, G]`.
      D: `units`, the width of all heads together.
      MAB: `[B, M, units]`; it follows the order of X, and does not depend on that of Y.

    Errors: `ValueError` where heads do not divide units.
    Source: Lee et al. 2019, section 3.1; from the authors' code the divisor, and that q, not X, is added and heads have
    no output matrix.
    Differs from the authors' code: keys have no bias, which a softmax over them would not notice.
    """

    def __init__(self, units=128, heads=4, **kwargs):
        super().__init__(**kwargs)
        require_counts(units=units, heads=heads)
        if units % heads:
            raise ValueError(f"heads must divide units, {units}. Received: {heads}")
        self.units, self.heads = units, heads
        dtype = self.dtype_policy
        self.queries = keras.layers.Dense(units, name="queries", dtype=dtype)
        self.keys = keras.layers.Dense(units, use_bias=False, name="keys", dtype=dtype)
        self.values = keras.layers.Dense(units, name="values", dtype=dtype)
        self.output_layer = keras.layers.Dense(units, activation="relu", name="output", dtype=dtype)
        self.norms = [keras.layers.LayerNormalization(name=f"norm{i}", dtype=dtype) for i in (1, 2)]

    def build(self, lookers_shape, seen_shape):
        self.queries.build(lookers_shape)
        self.keys.build(seen_shape)
        self.values.build(seen_shape)
        for layer in (self.output_layer, *self.norms):
            layer.build((*lookers_shape[:-1], self.units))

    def call(self, lookers, seen):
        queries = self.queries(lookers)
        # [B, M, D] -> [B, heads, M, D / heads]
        q, k, v = (self._split(part) for part in (queries, self.keys(seen), self.values(seen)))
        agreement = ops.cast(ops.matmul(q, ops.swapaxes(k, 2, 3)), "float32") / math.sqrt(self.units)
        found = ops.matmul(ops.cast(ops.softmax(agreement), v.dtype), v)
        # [B, heads, M, D / heads] -> [B, M, D]
        found = ops.reshape(ops.swapaxes(found, 1, 2), (-1, ops.shape(lookers)[1], self.units))
        hidden = self.norms[0](queries + found)
        return self.norms[1](hidden + self.output_layer(hidden))

    def _split(self, elements):
        split = ops.reshape(elements, (-1, ops.shape(elements)[1], self.heads, self.units // self.heads))
        return ops.swapaxes(split, 1, 2)

    def compute_output_shape(self, lookers_shape, seen_shape):
        return (*lookers_shape[:-1], self.units)

    def get_config(self):
        return {**super().get_config(), "units": self.units, "heads": self.heads}


@keras.saving.register_keras_serializable(package="capszoo")
class InducedSetAttention(keras.layers.Layer):
    """Elements of a set look at each other by way of a few learned points: the block ISAB.

        ISAB(X) = MAB(X, MAB(I, X))

    where:
      X: `[B, N, F]`; I: the weight `points[points, units]`.
      ISAB: `[B, N, units]`; it follows the order of X.

    Source: Lee et al. 2019, equation 9.
    """

    def __init__(self, units=128, heads=4, points=32, **kwargs):
        super().__init__(**kwargs)
        require_counts(points=points)
        self.units, self.heads, self.points = units, heads, points
        self.gather = SetAttention(units, heads, name="gather", dtype=self.dtype_policy)
        self.spread = SetAttention(units, heads, name="spread", dtype=self.dtype_policy)

    def build(self, elements_shape):
        self.induced = self.add_weight(
            name="points", shape=(self.points, self.units), initializer="glorot_uniform"
        )
        points = (elements_shape[0], self.points, self.units)
        self.gather.build(points, elements_shape)
        self.spread.build(elements_shape, points)

    def call(self, elements):
        return self.spread(elements, self.gather(repeated(self.induced, elements), elements))

    def compute_output_shape(self, elements_shape):
        return (*elements_shape[:-1], self.units)

    def get_config(self):
        return {**super().get_config(), "units": self.units, "heads": self.heads, "points": self.points}


@keras.saving.register_keras_serializable(package="capszoo")
class SeedPooling(keras.layers.Layer):
    """A set of any size as a few elements, one for each learned seed: the block PMA.

        PMA(X) = MAB(S, X)

    where:
      X: `[B, N, F]`; S: the weight `seeds[seeds, units]`.
      PMA: `[B, seeds, units]`; it does not depend on the order of X.

    Source: Lee et al. 2019, equation 11.
    Differs from the paper: X goes in without the row-wise feed-forward layer, as in the authors' code.
    """

    def __init__(self, seeds, units=128, heads=4, **kwargs):
        super().__init__(**kwargs)
        require_counts(seeds=seeds)
        self.num_seeds, self.units, self.heads = seeds, units, heads
        self.attention = SetAttention(units, heads, name="attention", dtype=self.dtype_policy)

    def build(self, elements_shape):
        self.seeds = self.add_weight(
            name="seeds", shape=(self.num_seeds, self.units), initializer="glorot_uniform"
        )
        self.attention.build((elements_shape[0], self.num_seeds, self.units), elements_shape)

    def call(self, elements):
        return self.attention(repeated(self.seeds, elements), elements)

    def compute_output_shape(self, elements_shape):
        return (elements_shape[0], self.num_seeds, self.units)

    def get_config(self):
        return {**super().get_config(), "seeds": self.num_seeds, "units": self.units, "heads": self.heads}


def repeated(weight, batch):
    """`weight[M, D]` for each row of `batch`: `[B, M, D]`."""
    weight = ops.cast(weight, batch.dtype)
    return ops.broadcast_to(weight[None], (ops.shape(batch)[0], *weight.shape))


@keras.saving.register_keras_serializable(package="capszoo")
class Named(keras.layers.Layer):
    """Adds to each element of a list a learned vector, its embedding, by which a set transformer tells elements apart.

        y_n = x_n + e_n

    where:
      x: `[B, N, D]`; e: the weight `names[N, D]`, at first normal with deviation 0.5.

    It is ours: Smith et al. 2020 do not say how their network tells parts apart.
    """

    def build(self, elements_shape):
        self.input_spec = keras.InputSpec(shape=(None, *elements_shape[1:]))
        self.names = self.add_weight(
            name="names", shape=elements_shape[1:], initializer=keras.initializers.RandomNormal(stddev=0.5)
        )

    def call(self, elements):
        return elements + self.names
