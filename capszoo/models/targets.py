"""Labels as people give them to `fit`, as whole numbers that tell classes."""

import numpy as np
from keras import ops


def check_labels(labels, num_classes, labels_per_image=1):
    """Labels as integers `[N]`, or `[N, k]` where an image has k of them.

    where:
      labels: integers `[N]` or `[N, 1]`, different ones `[N, k]`, or one-hot rows `[N, O]` (k-hot
        where an image has k labels).
      num_classes, labels_per_image: O and k.

    Errors: `ValueError` for anything else: another shape would broadcast, and train something that looks like success.
    """
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iufb":
        raise ValueError(f"labels must be integers. Received: {labels.dtype}, such as {labels.ravel()[:3]}")
    k = labels_per_image
    if labels.ndim == 2 and labels.shape[1] == num_classes != k and _is_hot(labels, k):
        # Of equal numbers the stable sort keeps the order, so the classes come in ascending order.
        rows = np.argsort(-labels.astype("float32"), axis=1, kind="stable")[:, :k]
        return rows[:, 0] if k == 1 else rows
    if labels.ndim == 2 and labels.shape[1] == k == 1:
        labels = labels[:, 0]
    shape = "[N]" if k == 1 else f"[N, {k}]"
    if labels.ndim != (1 if k == 1 else 2) or (k > 1 and labels.shape[1] != k):
        raise ValueError(
            f"labels must be integers {shape}, or {'one' if k == 1 else k}-hot rows [N, {num_classes}]. "
            f"Received: {labels.dtype} of shape {labels.shape}"
        )
    if labels.dtype.kind not in "iu" and not np.array_equal(labels, np.round(labels)):
        raise ValueError(f"labels must be integers. Received: {labels.dtype}, such as {labels.ravel()[:3]}")
    if labels.size and not (labels.min() >= 0 and labels.max() < num_classes):
        raise ValueError(
            f"labels must be in [0, {num_classes}), as the network has {num_classes} classes. Received: "
            f"{labels.min()} to {labels.max()}"
        )
    if k > 1 and (np.diff(np.sort(labels, axis=1), axis=1) == 0).any():
        raise ValueError(f"the {k} labels of an image must be different classes.")
    return labels.astype("int64")


def _is_hot(labels, k):
    return bool(np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == k).all())


def label_tensors(labels, num_classes, labels_per_image=1):
    """The same of tensors whose values are not known yet: labels `[B]` or `[B, k]`, and which rows `[B]` are labels.

    Errors: `ValueError` for tensors of another shape.
    """
    shape, k = tuple(labels.shape), labels_per_image
    if len(shape) == 2 and shape[1] == num_classes != k:
        hot = ops.cast(labels, "float32")
        whole = ops.all(ops.logical_or(hot == 0, hot == 1), axis=-1)
        values, rows = ops.top_k(hot, k)
        valid = ops.logical_and(whole, ops.sum(hot, axis=-1) == ops.sum(values, axis=-1))
        valid = ops.logical_and(valid, ops.sum(hot, axis=-1) == k)
    elif shape[1:] in ((), (1,)) if k == 1 else shape[1:] == (k,):
        given = ops.reshape(labels, (-1, k))
        rows = ops.cast(given, "int32")
        valid = ops.all(ops.logical_and(rows >= 0, rows < num_classes), axis=-1)
        valid = ops.logical_and(valid, ops.all(ops.cast(rows, given.dtype) == given, axis=-1))
        ordered = ops.sort(rows, axis=-1)
        valid = ops.logical_and(valid, ops.all(ordered[:, 1:] != ordered[:, :-1], axis=-1))
    else:
        expected = "[B]" if k == 1 else f"[B, {k}]"
        raise ValueError(f"labels must be integers {expected}. Received: {labels.dtype} of shape {shape}")
    return (ops.reshape(rows, (-1,)) if k == 1 else rows), valid
