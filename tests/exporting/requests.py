"""What clients send to a bundle, and the scores that come back."""

import importlib.util
import io
import sys
from pathlib import Path

import tensorflow as tf
from PIL import Image

CLIENTS = Path(__file__).parents[2] / "export" / "clients"
# Clients that read pictures import what is beside them.
sys.path.append(str(CLIENTS))


def encoded(pixels, kind="PNG"):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def predict_bytes(signatures, *pictures):
    return signatures["predict_bytes"](image_bytes=tf.constant(pictures))["scores"].numpy()


def scores_of(signatures, images):
    return signatures["serving_default"](images=tf.constant(images, tf.float32))["scores"].numpy()


def client(name):
    specification = importlib.util.spec_from_file_location(name, CLIENTS / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
