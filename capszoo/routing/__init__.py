"""Routing algorithms: pure mathematics on votes, one file each."""

from capszoo.routing.attention import AttentionRouting
from capszoo.routing.base import Routing
from capszoo.routing.digamma import digamma
from capszoo.routing.dynamic import DynamicRouting, UniformRouting
from capszoo.routing.em import EMRouting
from capszoo.routing.heinsen import HeinsenRouting
from capszoo.routing.inverted_attention import InvertedAttentionRouting
from capszoo.routing.kernel import KernelRouting
from capszoo.routing.lstm import LSTMRouting
from capszoo.routing.neighbourhood import Neighbourhood
from capszoo.routing.self_attention import SelfAttentionRouting
from capszoo.routing.self_routing import SelfRouting
from capszoo.routing.squash import exponential_squash, length, squash
from capszoo.routing.variational_bayes import VariationalBayesRouting
from capszoo.routing.von_mises_fisher import log_bessel_i, log_von_mises_fisher

__all__ = [
    "AttentionRouting",
    "DynamicRouting",
    "EMRouting",
    "HeinsenRouting",
    "InvertedAttentionRouting",
    "KernelRouting",
    "LSTMRouting",
    "Neighbourhood",
    "Routing",
    "SelfAttentionRouting",
    "SelfRouting",
    "UniformRouting",
    "VariationalBayesRouting",
    "digamma",
    "exponential_squash",
    "length",
    "log_bessel_i",
    "log_von_mises_fisher",
    "squash",
]
