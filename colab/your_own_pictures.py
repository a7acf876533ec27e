# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Your own pictures, on a CPU, a GPU or a TPU
#
# Pretrained capsules, a new head for classes of your own. Everything here is plain Keras, so it runs on whatever
# the backend finds. In place of the drawn shapes below, put your pictures into an array `[N, 28, 28, 1]`, from 0
# to 1, light on dark.

# %%
# Replaces nothing that is installed: on a machine with JAX and without TensorFlow (a TPU runtime) JAX is the backend.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("tensorflow") is None:
    os.environ["KERAS_BACKEND"] = "jax"
if importlib.util.find_spec("capszoo") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "capszoo"], check=True)

# %%
# %matplotlib inline
import keras
import numpy as np
from PIL import Image, ImageDraw

import capszoo
from capszoo import visualize

print(keras.backend.backend(), keras.distribution.list_devices())
NAMES = ["disc", "ring", "cross"]
COUNT = int(os.environ.get("CAPSZOO_NOTEBOOK_IMAGES", "240"))


# %%
def drawn(kind, rng):
    """A shape somewhere in a picture of 28x28, light on dark."""
    picture = Image.new("L", (28, 28))
    draw = ImageDraw.Draw(picture)
    x, y, r = rng.integers(10, 18), rng.integers(10, 18), rng.integers(5, 9)
    if kind == 0:
        draw.ellipse((x - r, y - r, x + r, y + r), fill=255)
    elif kind == 1:
        draw.ellipse((x - r, y - r, x + r, y + r), outline=255, width=3)
    else:
        draw.line((x - r, y - r, x + r, y + r), fill=255, width=3)
        draw.line((x - r, y + r, x + r, y - r), fill=255, width=3)
    return np.asarray(picture, "float32")[..., None] / 255


rng = np.random.default_rng(0)
labels = np.arange(COUNT) % 3
images = np.stack([drawn(label, rng) for label in labels])
training, testing = slice(0, COUNT * 3 // 4), slice(COUNT * 3 // 4, None)

# %% [markdown]
# `num_classes` makes the class capsules new; what is below keeps what it has learnt of MNIST. The loss is the
# paper's.

# %%
model = capszoo.load("kernel_mnist", num_classes=len(NAMES))
objective = model.architecture.objective(model)
objective

# %% [markdown]
# Here only the scores are trained, by cross-entropy over them: any loss of Keras will do.

# %%
classifier = keras.Model(model.input, model.output["scores"])
classifier.compile(
    keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"]
)
history = classifier.fit(
    model.preprocess(images[training]), labels[training], batch_size=16, epochs=3, verbose=2
)

# %%
scores = classifier.predict(model.preprocess(images[testing]), verbose=0)
print("right:", int((scores.argmax(axis=-1) == labels[testing]).sum()), "of", len(scores))

# %%
visualize.draw_predictions(images[testing][:3], scores[:3], NAMES)
