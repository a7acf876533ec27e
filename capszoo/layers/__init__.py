"""Capsule layers, free of any one paper's architecture."""

from capszoo.layers.decoder import Decoder
from capszoo.layers.dense import DenseCapsules
from capszoo.layers.length import Length
from capszoo.layers.masking import MaskCapsules, MostActive
from capszoo.layers.matrix import ConvCapsules, MatrixPrimaryCapsules, SharedClassCapsules
from capszoo.layers.primary import PrimaryCapsules

__all__ = [
    "ConvCapsules",
    "Decoder",
    "DenseCapsules",
    "Length",
    "MaskCapsules",
    "MatrixPrimaryCapsules",
    "MostActive",
    "PrimaryCapsules",
    "SharedClassCapsules",
]
