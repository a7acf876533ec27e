"""What is asked of the arguments of layers."""

import numbers

from capszoo.routing.base import Routing


def require_counts(**counts):
    """Errors: `ValueError` for the first of `counts` that is no integer of at least 1."""
    for name, count in counts.items():
        if not isinstance(count, numbers.Integral) or isinstance(count, bool):
            raise ValueError(f"{name} must be an integer. Received: {count!r}")
        if count < 1:
            raise ValueError(f"{name} must be at least 1. Received: {count!r}")


def require_shape(name, shape, layout):
    """Errors: `ValueError` for another rank than that of `layout`, like "[B, O, D]", and for an unknown size but B."""
    shape = tuple(shape)
    if len(shape) != layout.count(",") + 1 or None in shape[1:]:
        unknown = "; only B may be unknown" if None in shape[1:] else ""
        raise ValueError(f"{name} must be {layout}. Received shape: {shape}{unknown}")


def require_static(*shapes):
    """Errors: `ValueError` for children of whom more than the number of images, B, is unknown."""
    if any(None in shape[1:] for shape in shapes):
        received = " and ".join(str(tuple(shape)) for shape in shapes)
        raise ValueError(f"the children must have a static shape. Received: {received}")


def require_capsules(poses_shape, activations_shape, axes):
    """Errors: `ValueError` unless children are static, of one activation and a pose of one or two `axes` each."""
    require_static(poses_shape)
    if tuple(poses_shape[1:-axes]) != tuple(activations_shape[1:]):
        pose = {1: "one axis", 2: "two axes"}[axes]
        raise ValueError(
            f"each child has one activation and a pose of {pose}. Received: poses {tuple(poses_shape)}, "
            f"activations {tuple(activations_shape)}"
        )


def require_routing(routing, kind=Routing, name="routing"):
    """Errors: `ValueError` for what is no routing of that `kind`; `name` is the argument's."""
    if not isinstance(routing, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ValueError(f"the {name} must be {article} {kind.__name__}. Received: {type(routing).__name__}")
