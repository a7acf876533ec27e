"""Routing as a graph, from poses to parents, one image after the other: what servers, phones and XLA run.

The votes of one image fit into a processor's cache, those of a batch do not, and each iteration reads them several
times. They lie as `[N, O, I, D]`, all positions of all images being N, so that sums over children or over dimensions
are products of matrices.
"""

import keras
import numpy as np
from keras import ops

from capszoo.routing.neighbourhood import NOTHING
from capszoo.routing.tracing import is_for_processors

# Images with more votes than so many numbers, half a megabyte, are routed one after the other.
AT_ONCE = 2**17


def by_image(connections, procedure):
    """Routing of votes V = M W + addition.

    where:
      connections: a `Connections`.
      procedure: `(votes, poses[b, C, D], activations[b, C], matrices[I, width, O * width])` -> mu_j `[N, O, D]` and
        a_j `[N, O]`, for some images; `votes` is a `Votes`, which makes them.

    Returns `route(poses[B, C, D], activations[B, C], matrices[M, width, O, width])`, which returns poses
    `[B, P, O, D]` and activations `[B, P, O]`.
    """
    positions, children = connections.child.shape

    def route(poses, activations, matrices):
        (count, entries), (width, types) = poses.shape[1:], matrices.shape[1:3]
        votes = Votes(connections, count, width)
        matrices = ops.take(ops.reshape(matrices, (-1, width, types * width)), connections.matrix, axis=0)

        def some_images(capsules):
            mean, activations = procedure(votes, *capsules, matrices)
            mean = ops.reshape(mean, (-1, positions, types, entries))
            return mean, ops.reshape(activations, (-1, positions, types))

        if positions * children * types * entries <= AT_ONCE or not _fills_a_processor():
            return some_images((poses, activations))
        found = ops.map(lambda image: some_images([part[None] for part in image]), (poses, activations))
        return tuple(part[:, 0] for part in found)

    return route


def _fills_a_processor():
    """Whether one image is work enough: on processors, but not on accelerators, nor where devices share a batch."""
    if is_for_processors():
        return True
    if keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() == "cpu" and keras.distribution.distribution() is None
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        accelerators = tf.config.get_visible_devices("GPU") or tf.config.get_visible_devices("TPU")
        return not accelerators and not tf.distribute.has_strategy()
    return False


def deviations(votes, poses):
    """V_ij - mu_j `[N, O, I, D]` of votes and of poses `[N, O, D]`."""
    poses = ops.expand_dims(poses, 2)
    if keras.backend.backend() == "tensorflow":
        # TensorFlow repeats an axis in the middle slowly; a product with ones takes half the time.
        poses = ops.matmul(ops.ones((1, 1, votes.shape[2], 1), poses.dtype), poses)
    return votes - poses


def row_times(row, matrices):
    """Products `[..., M]` of rows `[..., N]` and matrices `[..., N, M]`."""
    return _row_times(row, matrices, transposed=False)


def times_column(matrices, column):
    """Products `[..., M]` of matrices `[..., M, N]` and columns `[..., N]`."""
    return _row_times(column, matrices, transposed=True)


def _row_times(row, matrices, transposed):
    """Products of rows and matrices, or of rows and their transposes, all of one type."""
    row = ops.expand_dims(row, -2)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # On processors oneDNN takes the place of the other batched product, and needs 1.5 to 4 times as long for a row.
        product = tf.raw_ops.BatchMatMulV3(x=row, y=matrices, Tout=row.dtype, adj_y=transposed)
    else:
        product = ops.matmul(row, ops.swapaxes(matrices, -2, -1) if transposed else matrices)
    return ops.squeeze(product, -2)


class Votes:
    """How votes are made of the poses of the C capsules of an image that `connections` are of.

    A pose of D numbers has rows of `width` numbers: a matrix of side 4 has four, a vector of 16 numbers has one.
    """

    def __init__(self, connections, count, width):
        self.addition = connections.addition
        self.entries, self.width = self.addition.size // connections.child.shape[1], width
        self.height = self.entries // width
        self.children = Children(connections.child, count)

    def rows(self, poses):
        """The rows of the poses of all children that are seen, `[I, N * row, width]`, of `[b, C, D]`."""
        seen = self.children.by_child(poses)
        children = seen.shape[1]
        if seen.shape[0] != 1:
            # [b, I, P, D] -> [I, b, P, D]. Of one image TensorFlow would move all of it to where it is.
            seen = ops.swapaxes(seen, 0, 1)
        return ops.reshape(seen, (children, -1, self.width))

    def of(self, rows, matrices):
        """V_ij `[N, O, I, D]` of rows `[I, N * row, width]` and matrices `[I, width, O * width]`, row by row."""
        return self._by_rows(ops.matmul(rows, matrices), matrices, self._addition())

    def centred(self, rows, matrices):
        """The same from their means over children, V_ij - m_j, and m_j `[N, O, D]`."""
        votes, addition = ops.matmul(rows, matrices), self._addition()
        # Here, where children are the first axis: that is where TensorFlow subtracts fastest.
        mean, of_addition = ops.mean(votes, axis=0, keepdims=True), addition.mean(0, keepdims=True)
        centred = self._by_rows(votes - mean, matrices, addition - of_addition)
        return centred, ops.squeeze(self._by_rows(mean, matrices, of_addition), 2)

    def _by_rows(self, votes, matrices, addition):
        """`[N, O, I, D]` of votes `[I, N * row, O * width]`, and of what is added to them `[I, row, column]`."""
        votes = ops.reshape(votes, (votes.shape[0], -1, self.height, *self._parents(matrices)))
        # [I, N, row, O, column] -> [N, O, I, row * column]
        return self._added(ops.transpose(votes, (1, 3, 0, 2, 4)), addition)

    def by_columns(self, rows, matrices):
        """The same, each vote listed column by column."""
        votes = ops.matmul(ops.swapaxes(matrices, 1, 2), ops.swapaxes(rows, 1, 2))
        votes = ops.reshape(votes, (rows.shape[0], *self._parents(matrices), -1, self.height))
        # [I, O, column, N, row] -> [N, O, I, column * row]
        votes = ops.transpose(votes, (3, 1, 0, 2, 4))
        return self._added(votes, self._addition().swapaxes(1, 2))

    def from_columns(self, poses):
        """Poses `[N, O, D]`, listed row by row, of some that are listed column by column."""
        # [N, O, column, row] -> [N, O, row, column]
        poses = ops.reshape(poses, (-1, poses.shape[1], self.width, self.height))
        return ops.reshape(ops.swapaxes(poses, 2, 3), (-1, poses.shape[1], self.entries))

    def to_rows(self, votes):
        """The rows of all votes of each child, `[I, N * row, O * width]`, of votes `[N, O, I, D]`."""
        types, children = votes.shape[1:3]
        votes = ops.reshape(votes, (-1, types, children, self.height, self.width))
        # [N, O, I, row, column] -> [I, N * row, O * column]
        return ops.reshape(ops.transpose(votes, (2, 0, 3, 1, 4)), (children, -1, types * self.width))

    def sums(self, poses, matrices):
        """sum_i V_ij `[N, O, D]` of poses `[b, C, D]` and matrices `[I, width, O * width]`: one product, no votes."""
        positions, children = self.children.child.shape
        parents, width = self._parents(matrices)
        # [b, C, row, column] -> [b * row, C, column]
        rows = ops.swapaxes(ops.reshape(poses, (-1, poses.shape[1], self.height, width)), 1, 2)
        seen = self.children.seen(ops.reshape(rows, (-1, poses.shape[1], width)))
        seen, matrices = (
            ops.reshape(seen, (-1, children * width)),
            ops.reshape(matrices, (children * width, -1)),
        )
        # [b, row, P, O, column] -> [N, O, row * column]
        sums = ops.reshape(ops.matmul(seen, matrices), (-1, self.height, positions, parents, width))
        sums = ops.reshape(ops.transpose(sums, (0, 2, 3, 1, 4)), (-1, parents, self.entries))
        return sums + ops.cast(self.addition.reshape(children, -1).sum(0), sums.dtype)

    def _parents(self, matrices):
        """The types of parents, and the width of their poses."""
        return matrices.shape[2] // self.width, self.width

    def _addition(self):
        """What is added to the votes of each child: an array `[I, row, column]`."""
        return self.addition.reshape(-1, self.height, self.width)

    def _added(self, votes, addition):
        """`[N, O, I, D]` of votes and of what is added to them, the last two axes `[row, column]` or the reverse."""
        votes = ops.reshape(votes, (-1, *votes.shape[1:3], self.entries))
        if not np.any(addition):
            return votes
        return votes + ops.cast(addition.reshape(-1, self.entries), votes.dtype)


class Children:
    """What parents see of children, and what all of a child's parents say of it.

    where:
      child: `[P, I]`, which of an image's C children the parents at each position see.
      count: C; some may be seen by none.
    """

    def __init__(self, child, count):
        self.child = child
        count = np.bincount(child.ravel(), minlength=count)
        # [C, K]: which entries of the flat [P * I] are a child's; what it has less than K is the entry after the last.
        self.entries = np.full((len(count), count.max()), child.size)
        self.entries[np.arange(count.max()) < count[:, None]] = np.argsort(child, axis=None, kind="stable")

    def seen(self, values):
        """`[b, C, ...]` -> `[b * P, I, ...]`."""
        shape = -1, self.child.shape[1], *values.shape[2:]
        seen = _gather(values, self.child, lambda gradient: self.total(ops.reshape(gradient, shape)))
        return ops.reshape(seen, shape)

    def by_child(self, values):
        """`[b, C, ...]` -> `[b, I, P, ...]`."""
        shape = -1, self.child.shape[1], *values.shape[2:]
        return _gather(
            values, self.child.T, lambda seen: self.total(ops.reshape(ops.swapaxes(seen, 1, 2), shape))
        )

    def total(self, seen, reduce=ops.sum, nothing=0.0):
        """Over all parents of each child: `[b * P, I, ...]` -> `[b, C, ...]`."""
        flat = ops.reshape(seen, (-1, self.child.size, *seen.shape[2:]))
        flat = ops.pad(flat, ((0, 0), (0, 1), *[(0, 0)] * (len(flat.shape) - 2)), constant_values=nothing)
        return reduce(ops.take(flat, self.entries, axis=1), axis=2)

    def sum(self, seen):
        """The sum over all parents of a child, given to each of them: `[b * P, I]` both."""
        return self.seen(self.total(seen)) if self.entries.shape[1] > 1 else seen

    def logsumexp(self, seen):
        """As `sum`, of values that are logarithms."""
        return self.seen(self.total(seen, ops.logsumexp, NOTHING)) if self.entries.shape[1] > 1 else seen


def _gather(values, index, gradient):
    """`values[:, index]` with a gradient of its own: TensorFlow's is a scatter, which refuses an empty batch."""

    @ops.custom_gradient
    def gather(values):
        return ops.take(values, index, axis=1), gradient

    return gather(values)
