"""The capsule network of Kiefer et al. 2022, which infers its activities instead of routing."""

import dataclasses
import typing

from capszoo.config import require_at_least, section
from capszoo.layers import DenseCapsules
from capszoo.models.architecture import InfersIteratively
from capszoo.models.dynamic import DynamicCapsNet
from capszoo.models.predictive_coding.iterative_inference import IterativeInference
from capszoo.routing import UniformRouting


@section("model", "predictive_coding")
@dataclasses.dataclass(frozen=True)
class PredictiveCodingCapsNet(DynamicCapsNet, InfersIteratively):
    """The network of Sabour et al. 2017 trained without routing, so that inference can do what routing would.

        images [B, H, W, C]
        conv1             9x9, `channels`, stride 1, ReLU
        primary_capsules  9x9, stride 2: `primary_types` x `primary_dim` per position
        hidden_capsules   where there are `hidden_capsules`: squash of the sum of all votes
        class_capsules    squash of the sum of all votes, or `routing`
        scores, decoder   as in `DynamicCapsNet`

    The model is the feed-forward pass; outputs as in `DynamicCapsNet`. `inference` makes the search for activities
    that agree with image and label.

    where:
      routing: "sum" (none), or for comparison "dynamic" with `num_iterations` softmaxes; others as in `DynamicCapsNet`.
        The authors' three iterations are four softmaxes.
      hidden_capsules: number of capsules between primary and class capsules; 0 for none. With them the authors have
        16 of `hidden_dim` 8, above 16 primary types.

    Parameters for 28x28x1: 8,215,568 (6,804,224 without decoder).
    Source: Kiefer et al. 2022, section 3.1 and appendix A; no bias in the class capsules: authors' code.
    Differs from the paper: its code counts 8,227,088 parameters, 11,520 of them a learnt prior of the routing logits,
    which nothing uses without routing; it has a weaker decoder (0.0005 of the error's mean over pixels), and neither
    the initial weights of Sabour's authors nor their factor before the primary squash, which belong together.
    """

    routing: typing.Literal["sum", "mean", "dynamic", "leaky"] = "sum"
    class_bias: bool = False
    hidden_capsules: int = 0
    hidden_dim: int = 8

    paper: typing.ClassVar[str] = "Kiefer et al. 2022"

    def __post_init__(self):
        super().__post_init__()
        require_at_least(self, 0, "hidden_capsules")
        require_at_least(self, 1, "hidden_dim")

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the layers whose activities are inferred, in the order of the data."""
        hidden = ("hidden_capsules",) if self.hidden_capsules else ()
        return ("conv1", "primary_capsules", *hidden, "class_capsules")

    def _class_capsules(self, primary, num_classes):
        if self.hidden_capsules:
            routing = UniformRouting("sum", use_bias=False, name="routing")
            primary = DenseCapsules(self.hidden_capsules, self.hidden_dim, routing, name="hidden_capsules")(
                primary
            )
        return super()._class_capsules(primary, num_classes)

    def inference(self, model, **options):
        """`IterativeInference` over the stages of `model`, which `build` has made; `options` are its own."""
        return IterativeInference(model, self.stages, **options)
