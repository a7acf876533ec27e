"""Architectures, one file per paper; importing this package registers them under their names."""

from capszoo.models.baselines import ConvNet
from capszoo.models.dynamic import DynamicCapsNet
from capszoo.models.matrix_em import MatrixCapsNet
from capszoo.models.objective import Objective

__all__ = ["ConvNet", "DynamicCapsNet", "MatrixCapsNet", "Objective"]
