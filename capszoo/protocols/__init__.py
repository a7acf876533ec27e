"""The papers' evaluations as code."""

from capszoo.protocols.classification import PROTOCOLS, evaluate
from capszoo.protocols.statistics import wilson

__all__ = ["PROTOCOLS", "evaluate", "wilson"]
