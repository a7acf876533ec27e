"""A set transformer whose elements may be absent: the less an element is present, the less it is looked at."""

import math

import keras
from keras import ops

from capszoo.layers.arguments import require_counts
from capszoo.layers.set_transformer import repeated

# Under presences, so that an absent element has a logarithm.
LEAST_PRESENCE = 1e-7


@keras.saving.register_keras_serializable(package="capszoo")
class PresentAttention(keras.layers.Layer):
    """Elements of one set look at those of another, as far as these are present.

        A(X, Y, d) = softmax(X W_q (Y W_k)' / sqrt(D) + log d) Y W_v W_o

    where:
      X, Y: `[B, M, F]` and `[B, N, G]`; d: presences of Y's elements, `[B, N]`, in [0, 1].
      D: `units`, the width of queries, keys and values. A: `[B, M, units]`.

    Where no element is present all count the same.
    Source: Kosiorek et al. 2019, section 2.3: presences "bias the attention mechanism not to take absent points into
    account".
    Differs from the authors' code: it subtracts (1 - d) 1e32 from the agreement, so that of elements with presences
    below 1 only the one most present is seen, whatever the agreement. Here the attention to an element is weighted by
    its presence. Keys have no bias, which a softmax over them would not notice.
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        require_counts(units=units)
        self.units = units
        self.queries, self.values, self.output_layer = (
            dense(units, name, self.dtype_policy) for name in ("queries", "values", "output")
        )
        self.keys = dense(units, "keys", self.dtype_policy, use_bias=False)

    def build(self, lookers_shape, seen_shape, presence_shape=None):
        self.queries.build(lookers_shape)
        self.keys.build(seen_shape)
        self.values.build(seen_shape)
        self.output_layer.build((*lookers_shape[:-1], self.units))

    def call(self, lookers, seen, presence):
        # [B, M, D] [B, D, N] -> [B, M, N]
        agreement = ops.matmul(self.queries(lookers), ops.swapaxes(self.keys(seen), 1, 2))
        agreement = ops.cast(agreement, "float32") / math.sqrt(self.units)
        bias = ops.log(ops.maximum(ops.cast(presence, "float32"), LEAST_PRESENCE))
        values = self.values(seen)
        shares = ops.cast(ops.softmax(agreement + ops.expand_dims(bias, 1)), values.dtype)
        return self.output_layer(ops.matmul(shares, values))

    def compute_output_shape(self, lookers_shape, seen_shape, presence_shape=None):
        return (*lookers_shape[:-1], self.units)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable(package="capszoo")
class PresentSetAttention(keras.layers.Layer):
    """Elements of a set look at each other, as far as they are present.

        h_n = norm(d_n (x_n + A(X, X, d)_n))
        y_n = norm(h_n + relu(h_n W_1) W_2)

    where:
      X: `[B, N, D]`; d: presences `[B, N]`, in [0, 1]; A: `PresentAttention`.
      W_1: `[D, 2 D]`. y: `[B, N, D]`; it follows the order of X.

    Source: authors' code of Kosiorek et al. 2019, after Lee et al. 2019, section 3.1.
    """

    def build(self, elements_shape, presence_shape=None):
        units, dtype = elements_shape[-1], self.dtype_policy
        self.attention = PresentAttention(units, name="attention", dtype=dtype)
        self.hidden = dense(2 * units, "hidden", dtype, activation="relu")
        self.output_layer = dense(units, "output", dtype)
        self.norms = [keras.layers.LayerNormalization(name=f"norm{i}", dtype=dtype) for i in (1, 2)]
        self.attention.build(elements_shape, elements_shape)
        for layer in (self.hidden, *self.norms):
            layer.build(elements_shape)
        self.output_layer.build((*elements_shape[:-1], 2 * units))

    def call(self, elements, presence):
        found = elements + self.attention(elements, elements, presence)
        hidden = self.norms[0](ops.expand_dims(presence, -1) * found)
        return self.norms[1](hidden + self.output_layer(self.hidden(hidden)))

    def compute_output_shape(self, elements_shape, presence_shape=None):
        return elements_shape


@keras.saving.register_keras_serializable(package="capszoo")
class PresentSeedPooling(keras.layers.Layer):
    """A set as a few elements, one for what each learned seed finds among those that are present.

        y = A(S, X, d)

    where:
      X: `[B, N, F]`; d: presences `[B, N]`, in [0, 1]; S: the weight `seeds[seeds, units]`; A: `PresentAttention`.
      y: `[B, seeds, units]`; it does not depend on the order of X.

    Source: authors' code of Kosiorek et al. 2019, after Lee et al. 2019, equation 11.
    """

    def __init__(self, seeds, units, **kwargs):
        super().__init__(**kwargs)
        require_counts(seeds=seeds)
        self.num_seeds, self.units = seeds, units
        self.attention = PresentAttention(units, name="attention", dtype=self.dtype_policy)

    def build(self, elements_shape, presence_shape=None):
        self.seeds = self.add_weight(
            name="seeds", shape=(self.num_seeds, self.units), initializer="glorot_uniform"
        )
        self.attention.build((elements_shape[0], self.num_seeds, self.units), elements_shape)

    def call(self, elements, presence):
        return self.attention(repeated(self.seeds, elements), elements, presence)

    def compute_output_shape(self, elements_shape, presence_shape=None):
        return (elements_shape[0], self.num_seeds, self.units)

    def get_config(self):
        return {**super().get_config(), "seeds": self.num_seeds, "units": self.units}


def dense(units, name, dtype, **options):
    """A dense layer with initial weights as in the authors' code: truncated normal, of deviation 1 / sqrt(inputs)."""
    return keras.layers.Dense(units, kernel_initializer="lecun_normal", name=name, dtype=dtype, **options)
