"""Architectures, one file per paper; importing this package registers them under their names."""

from capszoo.models.attention import AttentionCapsNet
from capszoo.models.baselines import ConvNet
from capszoo.models.dynamic import DynamicCapsNet
from capszoo.models.iterative_inference import IterativeInference, toy_network
from capszoo.models.learned_routing import ConsensusEMNet, KernelCapsNet, LSTMCapsNet
from capszoo.models.matrix_em import MatrixCapsNet
from capszoo.models.objective import Objective
from capszoo.models.predictive_coding import PredictiveCodingCapsNet
from capszoo.models.probabilistic import ProbabilisticCapsNet
from capszoo.models.sparse import DenseCapsNet, SparseCapsNet
from capszoo.models.vae import VariationalAutoencoder

__all__ = [
    "AttentionCapsNet",
    "ConsensusEMNet",
    "ConvNet",
    "DenseCapsNet",
    "DynamicCapsNet",
    "IterativeInference",
    "KernelCapsNet",
    "LSTMCapsNet",
    "MatrixCapsNet",
    "Objective",
    "PredictiveCodingCapsNet",
    "ProbabilisticCapsNet",
    "SparseCapsNet",
    "VariationalAutoencoder",
    "toy_network",
]
