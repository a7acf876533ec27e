"""Who sees whom in a layer of capsules, for the routings that take poses instead of votes."""

import collections

import numpy as np

# child [P, I], which of an image's C children the parents at each of P positions see; matrix [I], which of the
# transformations each of them uses; addition [I * 16], added to its votes; uniform [P, I], its coefficient in
# iteration 0.
Connections = collections.namedtuple("Connections", "child matrix addition uniform")


def connections(child, matrix, addition, uniform):
    """`Connections` of contiguous arrays of the types that compiled routing takes."""
    return Connections(
        np.ascontiguousarray(child, "int64"),
        np.ascontiguousarray(matrix, "int64"),
        np.ascontiguousarray(addition, "float32").ravel(),
        np.ascontiguousarray(uniform, "float32"),
    )
