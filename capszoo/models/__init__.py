"""Architectures, one file per paper; importing this package registers them under their names."""

from capszoo.models.dynamic import DynamicCapsNet
from capszoo.models.objective import Objective

__all__ = ["DynamicCapsNet", "Objective"]
