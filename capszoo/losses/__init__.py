"""What networks are trained on, as functions of targets and outputs, one value per image."""

from capszoo.losses.cross_entropy import ActivationCrossEntropy, ScoresLogLikelihood, SoftmaxOfActivations
from capszoo.losses.evidence_bound import GaussianNegativeLogLikelihood, SummedOutput
from capszoo.losses.margin import MarginLoss
from capszoo.losses.reconstruction import RECONSTRUCTION_WEIGHT, ReconstructionLoss
from capszoo.losses.sparsity import ExplanationSparsity, NegativeLogDensity, PresenceSparsity, SquaredOutput
from capszoo.losses.spread import SpreadLoss, spread_margin

__all__ = [
    "RECONSTRUCTION_WEIGHT",
    "ActivationCrossEntropy",
    "ExplanationSparsity",
    "GaussianNegativeLogLikelihood",
    "MarginLoss",
    "NegativeLogDensity",
    "PresenceSparsity",
    "ReconstructionLoss",
    "ScoresLogLikelihood",
    "SoftmaxOfActivations",
    "SpreadLoss",
    "SquaredOutput",
    "SummedOutput",
    "spread_margin",
]
