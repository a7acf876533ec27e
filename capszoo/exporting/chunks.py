"""Large batches in parts: what a request takes of memory does not grow with it without end."""

import tensorflow as tf

# Votes of matrix capsules take some ten megabytes an image. A batching server asks for 32 images at most.
CHUNK = 64


def in_chunks(function, images, shapes):
    """`function(images)` for up to `CHUNK` images at a time, one part after the other.

    where:
      function: takes images `[n, H, W, C]` and returns a dict of tensors `[n, ...]`; rows do not depend on each other.
      images: `[B, H, W, C]`, B at least 1.
      shapes: of the tensors of the dict by name, `(None, ...)`.

    Returns the dict for all B. A server with 4,096 images of `matrix_em_smallnorb` at once would else need 40 GB.
    """
    count = tf.shape(images)[0]
    parts = {
        name: tf.TensorArray(tf.float32, size=0, dynamic_size=True, infer_shape=False, element_shape=shape)
        for name, shape in shapes.items()
    }

    def body(number, parts):
        results = function(images[number * CHUNK : (number + 1) * CHUNK])
        return number + 1, {name: part.write(number, results[name]) for name, part in parts.items()}

    _, parts = tf.while_loop(
        lambda number, _: number * CHUNK < count, body, (0, parts), parallel_iterations=1
    )
    return {name: tf.ensure_shape(part.concat(), shapes[name]) for name, part in parts.items()}
