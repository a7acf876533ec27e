"""Routing algorithms: pure mathematics on votes, one file each."""

from capszoo.routing.base import Routing
from capszoo.routing.dynamic import DynamicRouting, UniformRouting
from capszoo.routing.squash import length, squash

__all__ = ["DynamicRouting", "Routing", "UniformRouting", "length", "squash"]
