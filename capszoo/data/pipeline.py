"""Batches in training order and in evaluation order.

A training batch is a pure function of (seed, step): a run that was interrupted goes on from any step with
exactly the batches it would have had.
"""

from collections.abc import Iterator

import numpy as np

from capszoo.data.split import Split, Stream, generator


class Batches:
    """Endless training batches of one size, by step.

    Every epoch is a new permutation of the split, drawn from (seed, epoch); its last incomplete batch is left
    out. Augmentation is drawn from (seed, step).

    where:
      split: what to draw from.
      batch_size: images per batch.
      seed: an integer in [0, 2^64).
      images: draws from only so many images of the split, chosen by the seed; a larger number adds to those of a
        smaller one. None draws from all.

    Errors: `ValueError` for more images than the split has, and for a batch size below 1 or above their number.
    """

    def __init__(self, split: Split, batch_size: int, seed: int, images: int | None = None):
        if images is not None and not 1 <= images <= len(split):
            raise ValueError(f"images must be in [1, {len(split)}], the split. Received: {images}")
        count = images or len(split)
        if not 1 <= batch_size <= count:
            raise ValueError(f"batch_size must be in [1, {count}], the split. Received: {batch_size}")
        self.split, self.batch_size, self.seed = split, batch_size, seed
        # What `permutation` takes: a number, or the images themselves.
        self._pool = len(split)
        if images is not None:
            self._pool = generator(seed, Stream.SUBSET, 0).permutation(len(split))[:images]
        self.steps_per_epoch = count // batch_size
        self._latest = (None, None)

    def batch_at(self, step: int) -> dict[str, np.ndarray]:
        """The batch of training step `step`, counted from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        indices = self._order(epoch)[position * self.batch_size : (position + 1) * self.batch_size]
        return self.split.batch(indices, generator(self.seed, Stream.AUGMENTATION, step))

    def _order(self, epoch):
        # Read and replaced as one tuple, since batches are also made in worker threads.
        latest, order = self._latest
        if latest != epoch:
            order = generator(self.seed, Stream.ORDER, epoch).permutation(self._pool)
            self._latest = (epoch, order)
        return order


def evaluation_batches(split: Split, batch_size: int) -> Iterator[dict[str, np.ndarray]]:
    """All images of a split once, in order and without augmentation; the last batch may be smaller."""
    for start in range(0, len(split), batch_size):
        yield split.batch(np.arange(start, min(start + batch_size, len(split))), None)
