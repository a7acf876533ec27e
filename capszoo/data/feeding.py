"""Batches as Keras wants to be fed with them; the only file of this package that needs Keras."""

import keras

from capszoo.data.pipeline import Batches


class Segment(keras.utils.PyDataset):
    """The training batches of steps [first_step, last_step), as one epoch of `model.fit`.

    `model.fit(segment, shuffle=False)`: without `shuffle=False` Keras feeds the steps in an order of its own.

    Errors: `ValueError` unless 0 <= first_step < last_step.
    """

    def __init__(self, batches: Batches, first_step: int, last_step: int, **options):
        if not 0 <= first_step < last_step:
            raise ValueError(f"expected 0 <= first_step < last_step. Received: {first_step}, {last_step}")
        super().__init__(**options)
        self.batches, self.first_step, self.last_step = batches, first_step, last_step

    def __len__(self):
        return self.last_step - self.first_step

    def __getitem__(self, index):
        return self.batches.batch_at(self.first_step + index)
