"""Latent optimisation: the latent variables of each image are optimised by themselves.

Source: Smith et al. 2020, section 2.4.

It starts from the latents that the network infers. The bound is that of the training, so that the difference says how
much of a failure is the network's and how much the generative model's.
"""

import contextlib
import dataclasses

import keras
import numpy as np
from keras import ops

from capszoo.data.preprocessing import grey_levels_to_unit
from capszoo.losses import GaussianNegativeLogLikelihood, SummedOutput
from capszoo.models.fitting import check_images
from capszoo.models.objective import Objective
from capszoo.progress import QUIET

FREE = ("part_poses", "part_logits", "poses", "logits")


@dataclasses.dataclass(frozen=True, eq=False)
class OptimisedLatents:
    """What latent optimisation has found.

    where:
      outputs: dict of arrays, named as the outputs of the model, with `part_logits` added.
      losses: minus the evidence lower bound, mean of the images, of one sample before each step; `[steps]`, in nats.
    """

    outputs: dict
    losses: np.ndarray


@keras.saving.register_keras_serializable(package="capszoo")
class FreeCapsules(keras.layers.Layer):
    """The middle of q(parts, objects) of a fixed list of images, as weights.

    Returns the weights `part_poses`, `part_logits`, `poses` and `logits`, whatever the images `[N, H, W, C]`.
    """

    def __init__(self, shapes, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}

    def build(self, _):
        self.free = {
            name: self.add_weight(name=name, shape=shape, initializer="zeros")
            for name, shape in self.shapes.items()
        }

    def call(self, _):
        return {name: ops.convert_to_tensor(weight) for name, weight in self.free.items()}

    def compute_output_spec(self, _):
        return {name: keras.KerasTensor(shape, "float32") for name, shape in self.shapes.items()}

    def get_config(self):
        return {**super().get_config(), "shapes": self.shapes}


def optimise_latents(network, model, images, steps=300, learning_rate=0.02, progress=QUIET):
    """Optimises the variables of `images` with Adam, starting from those that the model infers: an `OptimisedLatents`.

    where:
      network: the architecture, a `ProbabilisticCapsNet` with Delta posteriors.
      model: its inference model. Its weights stay as they are.
      images: `[N, H, W, C]`, as the model takes them; all are optimised at once, each by itself.
      progress: advances by 1 with each step.

    Presences are drawn anew in each step, and whose part each part is is summed out anew.
    Errors: `ValueError` for images of another shape than the model's, and for what are none.
    Source: Smith et al. 2020, section 2.4: hundreds to thousands of steps.
    Differs from the paper: Adam instead of plain gradient descent.
    """
    images = np.asarray(images)
    if images.shape[1:] != tuple(model.input_shape[1:]) or not len(images):
        raise ValueError(f"images must be [N, *{model.input_shape[1:]}]. Received shape: {images.shape}")
    check_images(model, images)
    images = np.asarray(grey_levels_to_unit(images), "float32")
    start = _first_guess(model, images)
    free = FreeCapsules({name: array.shape for name, array in start.items()}, name="free")
    # The batch is part of the graph: a weight belongs to each image.
    pixels = keras.Input(batch_shape=images.shape, name="images")
    outputs, divergence = _graph(network, model, free(pixels))
    for name, array in start.items():
        free.free[name].assign(array)
    optimised = keras.Model(pixels, {"reconstruction": outputs["reconstruction"], "divergence": divergence})
    losses = {
        "reconstruction": GaussianNegativeLogLikelihood(network.pixel_deviation),
        "divergence": SummedOutput(),
    }
    targets = {"reconstruction": images, "divergence": np.zeros(divergence.shape, "float32")}
    objective = Objective(optimised, losses, {}, lambda batch: (batch, targets))
    with _only(free, model):
        objective.compile(keras.optimizers.Adam(learning_rate), images)
        losses = _optimise(optimised, images, targets, steps, progress)
    final = keras.Model(pixels, outputs).predict_on_batch(images)
    return OptimisedLatents({name: np.asarray(array) for name, array in final.items()}, losses)


def _first_guess(model, images):
    """What the network says of the images, by the names in `FREE`."""
    parts, objects = (model.get_layer(name).input for name in ("part_capsules", "object_capsules"))
    guess = keras.Model(model.input, dict(zip(FREE, (*parts[:2], *objects[:2]), strict=True)))
    return {name: np.asarray(array) for name, array in guess.predict_on_batch(images).items()}


def _graph(network, model, free):
    """The generative half of `model` above free variables: outputs, named as the model's, and divergence."""
    parts = model.get_layer("part_capsules")(free["part_poses"], free["part_logits"])
    objects = model.get_layer("object_capsules")(free["poses"], free["logits"])
    density, coefficients = model.get_layer("selection")(objects[0], objects[2], parts[0], parts[2])
    outputs = {
        "scores": objects[1],
        "logits": objects[2],
        "poses": objects[0],
        "part_presence": parts[1],
        "part_logits": parts[2],
        "part_poses": parts[0],
        "coefficients": coefficients,
        "reconstruction": model.get_layer("renderer")(parts[0], parts[1]),
    }
    return outputs, network.divergence_layer()(objects[0], objects[2], objects[3], parts[3], density)


@contextlib.contextmanager
def _only(free, model):
    """Inside, no layer of `model` learns."""
    before = {layer: layer.trainable for layer in model.layers}
    try:
        for layer in before:
            layer.trainable = False
        free.trainable = True
        yield
    finally:
        for layer, trainable in before.items():
            layer.trainable = trainable


def _optimise(model, images, targets, steps, progress):
    losses = []
    for _ in range(steps):
        model.reset_metrics()
        losses.append(float(model.train_on_batch(images, targets, return_dict=True)["loss"]))
        progress.advance()
    return np.array(losses)
