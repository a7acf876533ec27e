"""Which parents each child of a convolutional capsule layer has."""

import dataclasses
import math

import numpy as np
from keras import ops

# Stands for the logarithm of nothing: far below any log-density, and its sums stay finite in float32.
NOTHING = -1e30


@dataclasses.dataclass(frozen=True)
class Neighbourhood:
    """The geometry of a convolutional capsule layer without padding ("valid").

    The parent at (h, w) sees, through tap (ky, kx), the child at

        (y, x) = (strides * h + ky, strides * w + kx)             # 0 <= ky, kx < kernel_size

    so a child has between one and ceil(kernel_size / strides)^2 parent positions; at the lower and right border,
    where `strides` does not divide the rest, it may have none, and between windows where `strides` exceeds
    `kernel_size`.

    where:
      kernel_size, strides: of both axes, at least 1.
      child_grid: `(H, W)`, each at least kernel_size.
      parent_grid: `(H', W')`, H' = (H - kernel_size) // strides + 1.
      taps: kernel_size^2, numbered row by row.

    Errors: `ValueError` for values out of range.
    Source: Hinton et al. 2018, section 4; Gritzman 2019 on children that are shared by several parents.
    """

    kernel_size: int
    strides: int
    child_grid: tuple[int, int]

    def __post_init__(self):
        if self.kernel_size < 1 or self.strides < 1:
            received = f"{self.kernel_size}, {self.strides}"
            raise ValueError(f"kernel_size and strides must be at least 1. Received: {received}")
        if min(self.child_grid) < self.kernel_size:
            raise ValueError(
                f"a grid of at least {self.kernel_size}x{self.kernel_size} children is needed. "
                f"Received: {tuple(self.child_grid)}"
            )

    @property
    def taps(self):
        return self.kernel_size**2

    @property
    def parent_grid(self):
        return tuple((side - self.kernel_size) // self.strides + 1 for side in self.child_grid)

    def unfold(self, children):
        """What each parent sees: values of children `[..., H, W]` -> `[taps, ..., H', W']`."""
        return ops.stack([children[..., rows, columns] for rows, columns in self._windows()])

    def unfold_array(self, children):
        """`unfold` of a NumPy array that has the children's grid, flat: `[taps, H', W']`."""
        children = np.reshape(children, self.child_grid)
        return np.stack([children[rows, columns] for rows, columns in self._windows()])

    def children(self, types):
        """Which children each parent sees, an int array `[parent positions, taps * types]`.

        Children are numbered row by row, their types fastest, as are the taps.
        """
        # [taps, H', W'] -> [H' * W', taps]
        cells = self.unfold_array(np.arange(math.prod(self.child_grid))).reshape(self.taps, -1).T
        return (cells[..., None] * types + np.arange(types)).reshape(len(cells), -1)

    def fold(self, seen, filler):
        """What was seen of each child: values at the parents `[taps, N, H', W']` -> `[taps, N, H, W]`.

        A tap through which no parent sees the child holds `filler`. Reducing over the taps gives each child's sum,
        maximum or log-sum-exp over all its parents.
        """
        offsets = np.ndindex(self.kernel_size, self.kernel_size)
        return ops.stack([self._place(seen[tap], *offset, filler) for tap, offset in enumerate(offsets)])

    def num_parents(self):
        """How many parent positions each child has: an int array `[H, W]`."""
        count = np.zeros(self.child_grid, int)
        for rows, columns in self._windows():
            count[rows, columns] += 1
        return count

    def _windows(self):
        """For each tap, the rows and columns of the children that the parents see through it."""
        spans = [self.strides * (side - 1) + 1 for side in self.parent_grid]
        return [
            tuple(slice(o, o + span, self.strides) for o, span in zip(offset, spans, strict=True))
            for offset in np.ndindex(self.kernel_size, self.kernel_size)
        ]

    def _place(self, values, row, column, filler):
        """Spreads `[N, H', W']` over a canvas `[N, H, W]`, beginning at (row, column)."""
        gap, (height, width) = self.strides, self.parent_grid
        if gap > 1:
            values = ops.reshape(values, (-1, height, 1, width, 1))
            margin = (0, gap - 1)
            values = ops.pad(values, ((0, 0), (0, 0), margin, (0, 0), margin), constant_values=filler)
            values = ops.reshape(values, (-1, height * gap, width * gap))
        after = [
            max(0, side - offset - size * gap)
            for side, offset, size in zip(self.child_grid, (row, column), (height, width), strict=True)
        ]
        padding = ((0, 0), (row, after[0]), (column, after[1]))
        # Of the last gap some may lie beyond the canvas.
        return ops.pad(values, padding, constant_values=filler)[:, : self.child_grid[0], : self.child_grid[1]]
