"""The evidence lower bound as what a generative model is trained on."""

from keras import ops

from capszoo.losses import GaussianNegativeLogLikelihood, SummedOutput
from capszoo.models.network import ImageModel
from capszoo.models.objective import Objective


def bound_objective(model, divergence, pixel_deviation):
    """Minus the evidence lower bound, of one sample of each image, as an `Objective`. Labels are not looked at.

    where:
      model: an inference model with the output `reconstruction`.
      divergence: the terms `[B, N]` of its graph that the latent variables cost.
      pixel_deviation: see `GaussianNegativeLogLikelihood`.
    """

    def arrange(batch):
        images = batch["images"]
        nothing = ops.zeros((ops.shape(images)[0], divergence.shape[1]), "float32")
        return {"images": images}, {"reconstruction": images, "divergence": nothing}

    outputs = {"reconstruction": model.output["reconstruction"], "divergence": divergence}
    losses = {"reconstruction": GaussianNegativeLogLikelihood(pixel_deviation), "divergence": SummedOutput()}
    return Objective(ImageModel({"images": model.input}, outputs), losses, {}, arrange)
