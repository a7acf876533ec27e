"""Networks whose class capsules are vectors: lengths are scores, and a decoder draws what the most active one holds."""

import keras

from capszoo.layers import Decoder, Length, MaskCapsules, MostActive
from capszoo.losses import MarginLoss, ReconstructionLoss
from capszoo.models.architecture import Classifies, DecodesPoses, Reconstructs
from capszoo.models.network import ImageModel
from capszoo.models.objective import Objective, class_targets, set_accuracy


class DecodesClasses(Classifies, DecodesPoses):
    """Vector class capsules with the margin loss and, with `decoder`, a reconstruction as regulariser.

        scores            lengths of the class capsules
        decoder           of the most active class capsule (at training: of the label's)

    where:
      decoder: whether there is one.
      loss_scaling: "paper" or "official" margin loss, see `MarginLoss`.

    Source: Sabour et al. 2017, sections 3 and 4.1.
    """

    decoder: bool
    loss_scaling: str

    @property
    def head(self):
        """See `Architecture.head`."""
        return ("class_capsules/", "decoder/hidden1/") if self.decoder else ("class_capsules/",)

    def has(self, role) -> bool:
        """See `Architecture.has`; without a decoder nothing is reconstructed."""
        return super().has(role) and (self.decoder or not issubclass(role, Reconstructs))

    def outputs(self, poses, image_shape, labels_per_image=1):
        """The outputs of class capsules with the poses `[B, classes, D]`, a symbolic tensor."""
        outputs = {"scores": Length(name="scores")(poses), "poses": poses}
        if self.decoder:
            selection = MostActive(labels_per_image, name="most_active")(outputs["scores"])
            masked = MaskCapsules(name="mask")(poses, selection)
            outputs["reconstruction"] = Decoder(image_shape, name="decoder")(masked)
            if labels_per_image == 1:
                outputs["reconstruction"] = keras.layers.Reshape(
                    image_shape, name="reconstruction", dtype="float32"
                )(outputs["reconstruction"])
        return outputs

    def decode(self, model, poses, selection):
        """See `DecodesPoses`."""
        return model.get_layer("decoder")(model.get_layer("mask")(poses, selection))

    def objective(self, model, labels_per_image=1):
        """Margin loss on the scores; with a decoder also the reconstruction of the labelled capsules."""
        num_classes = model.output["scores"].shape[-1]
        outputs = {"scores": model.output["scores"]}
        inputs = {"images": model.input}
        losses = {"scores": MarginLoss(self.loss_scaling)}
        if self.decoder:
            inputs["labels"] = keras.Input((labels_per_image, num_classes), name="labels")
            outputs["reconstruction"] = self.decode(model, model.output["poses"], inputs["labels"])
            losses["reconstruction"] = ReconstructionLoss()

        def arrange(batch):
            if self.decoder and labels_per_image > 1 and "sources" not in batch:
                raise ValueError(
                    f"reconstructions of {labels_per_image} classes in an image need each by itself, which `fit` does "
                    "not take; train it with `capszoo train`, or without a decoder."
                )
            one_hot, present = class_targets(batch["labels"], num_classes, labels_per_image)
            inputs = {"images": batch["images"]}
            targets = {"scores": present}
            if self.decoder:
                inputs["labels"] = one_hot
                targets["reconstruction"] = (
                    batch["sources"] if "sources" in batch else batch["images"][:, None]
                )
            return inputs, targets

        return Objective(ImageModel(inputs, outputs), losses, {"scores": [set_accuracy]}, arrange)
