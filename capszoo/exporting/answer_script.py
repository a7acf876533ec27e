"""Script: answers images with the outputs of a SavedModel until its input ends. Knows no capszoo.

Images come and outputs go as pickles of arrays, over the standard streams.
"""

import os
import pickle
import sys

# What libraries print is no answer.
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402


def main(saved_model):
    """Outputs of `serving_default` for one array of images after the other."""
    # A signature lives as long as what it was loaded with.
    loaded = tf.saved_model.load(saved_model)
    while True:
        try:
            images = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        outputs = loaded.signatures["serving_default"](images=tf.constant(images))
        pickle.dump({name: np.asarray(value) for name, value in outputs.items()}, answers)
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
