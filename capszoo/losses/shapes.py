"""Targets must be shaped like outputs: others would broadcast, and an image be compared with other images' outputs."""


def require_shape(targets, outputs, what="targets"):
    """Errors: `ValueError` unless `targets`, called `what`, have the shape of `outputs`, as far as both are known."""
    received, expected = tuple(targets.shape), tuple(outputs.shape)
    # A graph may not know a size.
    same = len(received) == len(expected) and all(
        size is None or other is None or size == other for size, other in zip(received, expected, strict=True)
    )
    if not same:
        raise ValueError(f"{what} must have the shape of the outputs, {expected}. Received: {received}")
