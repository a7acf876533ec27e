"""What networks are trained on whose class capsules tell by their activations what an image shows."""

from capszoo.losses import (
    ActivationCrossEntropy,
    MarginLoss,
    ScoresLogLikelihood,
    SoftmaxOfActivations,
    SpreadLoss,
    spread_margin,
)
from capszoo.models.network import ImageModel
from capszoo.models.objective import Objective, class_targets, set_accuracy


def classification(model, loss, labels_per_image=1, scaling="paper", margin="linear") -> Objective:
    """The objective of a loss on the output `scores` of `model`.

    where:
      loss: "spread" (Hinton et al. 2018), "margin" (Sabour et al. 2017), "cross_entropy" of the activations' logits,
        "softmax_of_activations", the cross-entropy of a softmax over the scores themselves, as if they were logits (De
        Sousa Ribeiro et al. 2020), or "log_likelihood" of scores that sum to one.
      scaling: "paper" or "official", see `SpreadLoss` and `MarginLoss`.
      margin: schedule of the spread loss's margin, see `spread_margin`.

    Errors: `ValueError` for several labels per image, unless the loss is "margin".
    """
    if labels_per_image != 1 and loss != "margin":
        raise ValueError(f"loss {loss!r} needs one label per image. Received: {labels_per_image}")
    num_classes = model.output["scores"].shape[-1]
    losses = {
        "spread": lambda: SpreadLoss(scaling),
        "margin": lambda: MarginLoss(scaling),
        "cross_entropy": ActivationCrossEntropy,
        "softmax_of_activations": SoftmaxOfActivations,
        "log_likelihood": ScoresLogLikelihood,
    }

    def arrange(batch):
        _, targets = class_targets(batch["labels"], num_classes, labels_per_image)
        if loss == "spread":
            # A batch that is no part of a training is measured with the margin that training ends with.
            targets = targets * spread_margin(batch.get("progress", 1.0), margin)
        return {"images": batch["images"]}, {"scores": targets}

    inputs, outputs = {"images": model.input}, {"scores": model.output["scores"]}
    trained = ImageModel(inputs, outputs)
    scores = {"scores": [set_accuracy]}
    return Objective(trained, {"scores": losses[loss]()}, scores, arrange, scheduled=loss == "spread")
