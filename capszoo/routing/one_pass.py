"""Routing that iterates nothing: what each child gives to each parent is settled in one pass."""

from capszoo.routing.base import Routing


class _OnePass(Routing):
    """What routings of a single pass share: no count of iterations, and one learned number for each pair.

    where:
      pair_weight: name of the weight `[O, I]`, at first zero; a subclass says it.

    Errors: `ValueError` for votes of rank below 4.
    """

    pair_weight: str

    def __init__(self, **kwargs):
        super().__init__(num_iterations=1, **kwargs)

    def build(self, votes_shape):
        if len(votes_shape) < 4:
            raise ValueError(f"votes must be [B, ..., I, O, D]. Received shape: {tuple(votes_shape)}")
        children, parents = votes_shape[-3:-1]
        self.parent_count = parents
        weight = self.add_weight(name=self.pair_weight, shape=(parents, children), initializer="zeros")
        setattr(self, self.pair_weight, weight)

    def step(self, state, votes, activations, iteration):
        return state  # One pass is all there is.

    def get_config(self):
        config = super().get_config()
        del config["num_iterations"]
        return config
