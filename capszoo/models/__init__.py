"""Architectures, one file per paper; importing this package registers them under their names."""

from capszoo.models.baselines import ConvNet
from capszoo.models.dynamic import DynamicCapsNet
from capszoo.models.efficient import EfficientCapsNet
from capszoo.models.heinsen import HeinsenCapsNet
from capszoo.models.inner_consensus import ConsensusEMNet, KernelCapsNet, LSTMCapsNet
from capszoo.models.inverted_attention import InvertedAttentionCapsNet
from capszoo.models.matrix_em import MatrixCapsNet
from capszoo.models.objective import Objective
from capszoo.models.predictive_coding.attention import AttentionCapsNet
from capszoo.models.predictive_coding.iterative_inference import IterativeInference, toy_network
from capszoo.models.predictive_coding.network import PredictiveCodingCapsNet
from capszoo.models.probabilistic.autoencoder import VariationalAutoencoder
from capszoo.models.probabilistic.network import ProbabilisticCapsNet
from capszoo.models.scae import StackedCapsuleAutoencoder
from capszoo.models.self_routing import SelfRoutingCapsNet
from capszoo.models.sparse import SparseCapsNet, UnmaskedCapsNet
from capszoo.models.variational_bayes import VariationalBayesCapsNet

__all__ = [
    "AttentionCapsNet",
    "ConsensusEMNet",
    "ConvNet",
    "DynamicCapsNet",
    "EfficientCapsNet",
    "HeinsenCapsNet",
    "InvertedAttentionCapsNet",
    "IterativeInference",
    "KernelCapsNet",
    "LSTMCapsNet",
    "MatrixCapsNet",
    "Objective",
    "PredictiveCodingCapsNet",
    "ProbabilisticCapsNet",
    "SelfRoutingCapsNet",
    "SparseCapsNet",
    "StackedCapsuleAutoencoder",
    "UnmaskedCapsNet",
    "VariationalAutoencoder",
    "VariationalBayesCapsNet",
    "toy_network",
]
