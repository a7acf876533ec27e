"""What a model is compiled with, and the set accuracy that training reports."""

import keras
import numpy as np
import pytest

from capszoo.models.objective import Objective, set_accuracy


class Counted(keras.Model):
    """A model that counts how often its step is traced."""

    traces = 0

    def train_step(self, *arguments):
        self.traces += 1
        return super().train_step(*arguments)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_the_first_step_is_traced_once_and_compiling_changes_nothing(policy):
    images = keras.Input((4,))
    outputs = {name: keras.layers.Dense(2, name=name, dtype=policy)(images) for name in ("first", "second")}
    model = Counted(images, outputs)
    losses = {name: keras.losses.MeanSquaredError() for name in outputs}

    def arrange(batch):
        return batch["images"], {name: batch[name] for name in outputs}

    objective = Objective(model, losses, {"first": [set_accuracy]}, arrange)
    ones = np.ones((3, 2), "float32")
    batch = {"images": np.ones((3, 4), "float32"), "first": ones, "second": ones}
    before = model.get_weights()
    objective.compile(keras.optimizers.Adam(), batch)
    assert not any(np.any(variable) for metric in model.metrics for variable in metric.variables)
    assert int(model.optimizer.iterations) == 0
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)
    logs = model.train_on_batch(*objective.arrange(batch), return_dict=True)
    assert model.traces == 1
    assert set(logs) == {"loss", "first_loss", "second_loss", "first_set_accuracy"}


@pytest.mark.parametrize(
    ("targets", "scores", "right"),
    [
        ([0, 1, 0], [0.1, 0.8, 0.3], 1),
        ([0, 1, 0], [0.9, 0.8, 0.3], 0),
        ([0, 1, 1], [0.2, 0.8, 0.3], 1),
        ([0, 1, 1], [0.4, 0.8, 0.3], 0),
        ([0, 1, 0], [0.5, 0.5, 0.3], 0),
    ],
    ids=["the longest", "another is longer", "the two longest", "one of two", "a tie"],
)
def test_an_image_is_right_when_its_classes_are_exactly_the_highest_scores(targets, scores, right):
    value = set_accuracy(np.array([targets], "float32"), np.array([scores], "float32"))
    np.testing.assert_array_equal(value, [right])


def test_images_are_counted_one_by_one():
    targets = np.eye(3, dtype="float32")
    scores = np.array([[0.9, 0.1, 0.1], [0.9, 0.1, 0.1], [0.1, 0.2, 0.3]], "float32")
    np.testing.assert_array_equal(set_accuracy(targets, scores), [1, 0, 1])
