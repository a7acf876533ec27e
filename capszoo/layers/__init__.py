"""Capsule layers, free of any one paper's architecture."""

from capszoo.layers.decoder import Decoder
from capszoo.layers.dense import DenseCapsules
from capszoo.layers.length import Length
from capszoo.layers.masking import MaskCapsules, MostActive
from capszoo.layers.primary import PrimaryCapsules

__all__ = ["Decoder", "DenseCapsules", "Length", "MaskCapsules", "MostActive", "PrimaryCapsules"]
