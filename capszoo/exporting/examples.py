"""The pictures on which a bundle is compared with its model."""

import json

import keras
import numpy as np
import tensorflow as tf

from capszoo.data import samples
from capszoo.exporting.verification import EXAMPLES, ROUNDING

# Pictures of our own that are like a data set's.
SAMPLES = {
    "mnist": lambda: samples.digits()[0][::5],
    "smallnorb": lambda: samples.toys()[0],
    "synthnorb": lambda: samples.toys()[0],
}


def fitting(dataset, image_shape):
    """Pictures `[n, H, W, C]` in [0, 1] for a network of a data set, and what they are: "samples" or "drawn".

    Digits lie in the middle of a larger canvas, as `data.pad` places them.
    """
    if dataset in SAMPLES:
        images = SAMPLES[dataset]()
        margins = [asked - own for asked, own in zip(image_shape, images.shape[1:], strict=True)]
        larger = dataset == "mnist" and min(margins) >= 0
        if margins[-1] == 0 and (larger or not any(margins)):
            return np.pad(images, [(0, 0), *((m // 2, m - m // 2) for m in margins)]), "samples"
    return drawn(image_shape), "drawn"


def drawn(image_shape, count=4):
    """`count` pictures of soft blobs `[count, H, W, C]` in [0, 1], always the same."""
    coarse = np.random.default_rng(0).random((count, 5, 5, image_shape[-1]), dtype="float32")
    smooth = tf.image.resize(coarse, image_shape[:2], method="bicubic").numpy()
    return np.clip(4.0 * smooth - 1.5, 0.0, 1.0)


def write_examples(bundle, images, model, signatures):
    """Writes the pictures as arrays and as PNG, with what the Keras model says of them.

    The features of the first picture only: they are large. Pixels are rounded to 8 bits first, so that a
    PNG holds exactly the same picture. Another file says of every array how far it moves when the last bit of every
    pixel does.
    """
    levels = np.round(np.asarray(images, "float32") * 255.0).astype("uint8")
    images = levels / np.float32(255.0)
    path = bundle / EXAMPLES
    path.parent.mkdir(parents=True)
    for index, picture in enumerate(levels):
        # A stereo pair lies side by side: [H, W, 2] -> [H, 2 W, 1].
        sheet = np.concatenate(np.split(picture, 2, axis=-1), axis=1) if picture.shape[-1] == 2 else picture
        path.with_name(f"{index}.png").write_bytes(tf.io.encode_png(sheet).numpy())
    # An accelerator's arithmetic is coarser than what the comparison resolves.
    with tf.device("CPU:0"):
        inputs = keras.ops.convert_to_numpy(signatures.preprocess(keras.ops.convert_to_tensor(images)))
        said = _says(model, signatures, inputs)
        moved = _says(model, signatures, inputs * _last_bits(inputs.shape))
    np.savez_compressed(path, images=images, **said)
    rounding = {name: float(np.abs(moved[name] - said[name]).max()) for name in said}
    (bundle / ROUNDING).write_text(json.dumps(rounding, indent=1) + "\n", encoding="utf-8")


def _says(model, signatures, inputs):
    """What is served of all pictures, and the features of the first."""
    outputs, features = model(inputs, training=False), signatures.observer(inputs[:1], training=False)
    arrays = {key: outputs[key] for key in signatures.predictor.output}
    arrays |= {f"features/{key}": value for key, value in features.items()}
    # As they are served.
    return {key: np.asarray(value, "float32") for key, value in arrays.items()}


def _last_bits(shape):
    """Factors that move each number to a neighbour, up or down."""
    signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0], "float32"), shape)
    return 1.0 + np.finfo("float32").eps * signs
