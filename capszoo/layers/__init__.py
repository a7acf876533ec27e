"""Capsule layers, free of any one paper's architecture.

All of them refuse counts that are no integers of at least 1, and what is no routing, with `ValueError`.
"""

from capszoo.layers.affine_poses import PartCapsules, PartElements
from capszoo.layers.attention import GaussianCapsules, Patches, TopDownCapsules
from capszoo.layers.attention_pooling import AttentionPooling
from capszoo.layers.batch_normalised import (
    BatchNormalisedClassCapsules,
    BatchNormalisedConvCapsules,
    BatchNormalisedPrimaryCapsules,
)
from capszoo.layers.concurrent import ConcurrentCapsules
from capszoo.layers.coordinates import CoordinateChannels
from capszoo.layers.decoder import Decoder
from capszoo.layers.dense import DenseCapsules
from capszoo.layers.depthwise import DepthwisePrimaryCapsules
from capszoo.layers.generative import Divergence, GaussianCode, PartsFromObjects, SampledCapsules
from capszoo.layers.heinsen import HeinsenCapsules
from capszoo.layers.inner_consensus import (
    AffinePrimaryCapsules,
    NormalisedClassCapsules,
    NormalisedConvCapsules,
)
from capszoo.layers.length import Length
from capszoo.layers.masking import MaskCapsules, MostActive
from capszoo.layers.matrix import ConvCapsules, MatrixPrimaryCapsules, SharedClassCapsules
from capszoo.layers.object_votes import ObjectVotes, SeparateDense, VoteMixture
from capszoo.layers.present_set import PresentAttention, PresentSeedPooling, PresentSetAttention
from capszoo.layers.primary import PrimaryCapsules
from capszoo.layers.self_routed import SelfRoutedClassCapsules
from capszoo.layers.set_transformer import InducedSetAttention, Named, SeedPooling, SetAttention
from capszoo.layers.sparse import LatentCapsules, SparseMask
from capszoo.layers.template_mixture import TemplateMixture
from capszoo.layers.templates import TemplateRenderer

__all__ = [
    "AffinePrimaryCapsules",
    "AttentionPooling",
    "BatchNormalisedClassCapsules",
    "BatchNormalisedConvCapsules",
    "BatchNormalisedPrimaryCapsules",
    "ConcurrentCapsules",
    "ConvCapsules",
    "CoordinateChannels",
    "Decoder",
    "DenseCapsules",
    "DepthwisePrimaryCapsules",
    "Divergence",
    "GaussianCapsules",
    "GaussianCode",
    "HeinsenCapsules",
    "InducedSetAttention",
    "LatentCapsules",
    "Length",
    "MaskCapsules",
    "MatrixPrimaryCapsules",
    "MostActive",
    "Named",
    "NormalisedClassCapsules",
    "NormalisedConvCapsules",
    "ObjectVotes",
    "PartCapsules",
    "PartElements",
    "PartsFromObjects",
    "Patches",
    "PresentAttention",
    "PresentSeedPooling",
    "PresentSetAttention",
    "PrimaryCapsules",
    "SampledCapsules",
    "SeedPooling",
    "SelfRoutedClassCapsules",
    "SeparateDense",
    "SetAttention",
    "SharedClassCapsules",
    "SparseMask",
    "TemplateMixture",
    "TemplateRenderer",
    "TopDownCapsules",
    "VoteMixture",
]
