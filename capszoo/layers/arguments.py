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


def require_routing(routing, kind=Routing, name="routing"):
    """Errors: `ValueError` for what is no routing of that `kind`; `name` is the argument's."""
    if not isinstance(routing, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ValueError(f"the {name} must be {article} {kind.__name__}. Received: {type(routing).__name__}")
