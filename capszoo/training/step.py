"""The training step as TensorFlow runs it, with the same bits every time."""

import keras


def of_any_batch(model):
    """Gives a compiled `model` a training step whose graph does not know how many images a batch has.

    Where TensorFlow estimates that a graph takes most of the memory that it believes a CPU to have, 256 MB, it rewrites
    sums of three and more tensors so that terms are added as they arrive, in another order each time. The gradient of
    votes is such a sum, of one term for each iteration that looks at them. Of a batch of no known size it estimates
    nothing, and terms are added in the order in which they are written.
    """
    import tensorflow as tf

    step = None

    def train_function(batches):
        """Keras hands over an iterator of one batch: inputs, targets, and no weights of examples."""
        nonlocal step
        examples = next(batches)[:2]
        if step is None:
            specs = keras.tree.map_structure(
                lambda array: tf.TensorSpec((None, *array.shape[1:]), array.dtype), examples
            )
            step = tf.function(model.train_step, input_signature=[specs])
        return step(examples)

    model.train_function = train_function
