"""Capsule layers, free of any one paper's architecture."""

from capszoo.layers.decoder import Decoder
from capszoo.layers.dense import DenseCapsules
from capszoo.layers.learned import AffinePrimaryCapsules, NormalisedClassCapsules, NormalisedConvCapsules
from capszoo.layers.length import Length
from capszoo.layers.masking import MaskCapsules, MostActive
from capszoo.layers.matrix import ConvCapsules, MatrixPrimaryCapsules, SharedClassCapsules
from capszoo.layers.primary import PrimaryCapsules
from capszoo.layers.sparse import LatentCapsules, SparseMask

__all__ = [
    "AffinePrimaryCapsules",
    "ConvCapsules",
    "Decoder",
    "DenseCapsules",
    "LatentCapsules",
    "Length",
    "MaskCapsules",
    "MatrixPrimaryCapsules",
    "MostActive",
    "NormalisedClassCapsules",
    "NormalisedConvCapsules",
    "PrimaryCapsules",
    "SharedClassCapsules",
    "SparseMask",
]
