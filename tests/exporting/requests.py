"""What clients send to a bundle, and the scores that come back."""

import io

import tensorflow as tf
from PIL import Image


def encoded(pixels, kind="PNG"):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def predict_bytes(signatures, *pictures):
    return signatures["predict_bytes"](image_bytes=tf.constant(pictures))["scores"].numpy()


def scores_of(signatures, images):
    return signatures["serving_default"](images=tf.constant(images, tf.float32))["scores"].numpy()
