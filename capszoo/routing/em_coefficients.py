"""E-steps of EM routing as a graph, see `em_by_image.py`: how a child is shared among its parents.

With rho_ij = R_ij a_i, a share, and d y the gradient of the loss by y.
"""

from keras import ops

# What the authors' code adds to the sums over a child's parents, and how many times all of them are computed: as a
# float16, in LiteRT files of such weights, 1e-7 would be 1.2e-7, which moves scores by a hundredth.
LEAST, SCALE = 1e-7, 2.0**10


class OverParents:
    """Coefficients that sum to one over all parents of a child, k being all of them.

        R_ij = exp(z_ij) / sum_k exp(z_ik)
        d z_ij = rho_ij (d rho_ij - sum_k R_ik d rho_ik)

    where:
      children: the `Children` of an image.
    """

    def __init__(self, children):
        self.children = children

    def of(self, weights):
        """R_ij of z_ij, `[N, O, I]` both, and what `gradient` needs of them."""
        # First over the types of parents at one position, then over the positions that see the child.
        highest = ops.max(weights, axis=1, keepdims=True)
        shares = ops.exp(weights - highest)
        total = highest[:, 0] + ops.log(ops.sum(shares, axis=1))
        return shares * ops.exp(highest - self.children.logsumexp(total)[:, None]), ()

    def gradient(self, kept, coefficients, activations, d_share):
        """d z_ij, of what `of` returned, activations `[b, C]` and d rho_ij `[N, O, I]`."""
        mean = self.children.sum(ops.sum(coefficients * d_share, axis=1))[:, None]
        return coefficients * self.children.seen(activations)[:, None] * (d_share - mean)


class OverPositions:
    """Coefficients that sum to one for every type of parent, as in the authors' code; k: positions of one type.

        m_go = max z_io over all positions and all children of type g
        R_io = exp(z_io - m_go) / (sum_k exp(z_ik - m_go) + 1e-7)
        d z_io = rho_io (d rho_io - sum_k R_ik d rho_ik)
        d m_go = -sum_i a_i w_io sum_k R_ik d rho_ik,       w_io = 1e-7 / (sum_k exp(z_ik - m_go) + 1e-7)

    and d m_go goes to the z_io that is m_go, in equal parts to several.

    where:
      children: the `Children` of an image, their types the fastest.
      groups: types of children.
      types: of parents.
    """

    def __init__(self, children, groups, types):
        self.children, self.groups, self.types = children, groups, types

    def of(self, weights):
        """See `OverParents.of`."""
        positions, children = self.children.child.shape
        # [N, O, I] -> [b, P, O, taps, G]
        by_type = ops.reshape(weights, (-1, positions, self.types, children // self.groups, self.groups))
        highest = ops.max(by_type, axis=(1, 3), keepdims=True)
        shares = SCALE * ops.reshape(ops.exp(by_type - highest), (-1, self.types, children))
        total = self._total(shares) + SCALE * LEAST
        return shares / self._seen(total), (total, ops.equal(by_type, highest))

    def gradient(self, kept, coefficients, activations, d_share):
        """See `OverParents.gradient`."""
        total, peaks = kept
        mean = self._total(coefficients * d_share)
        shares = coefficients * self.children.seen(activations)[:, None]
        slopes = -activations[..., None] * (SCALE * LEAST / total) * mean
        # [b, C, O] -> [b, 1, O, 1, G]
        slopes = ops.sum(
            ops.reshape(slopes, (-1, slopes.shape[1] // self.groups, self.groups, self.types)), axis=1
        )
        slopes = ops.swapaxes(slopes, 1, 2)[:, None, :, None]
        peaks = ops.cast(peaks, slopes.dtype)
        of_peaks = peaks * (slopes / ops.sum(peaks, axis=(1, 3), keepdims=True))
        return shares * (d_share - self._seen(mean)) + ops.reshape(of_peaks, (-1, *coefficients.shape[1:]))

    def _total(self, shares):
        """Over the positions that see a child: `[N, O, I]` -> `[b, C, O]`."""
        return self.children.total(ops.swapaxes(shares, 1, 2))

    def _seen(self, total):
        """`[b, C, O]` -> `[N, O, I]`."""
        return ops.swapaxes(self.children.seen(total), 1, 2)
