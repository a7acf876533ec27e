# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Your own pictures, on a CPU, a GPU or a TPU
#
# Pretrained capsules, and class capsules for classes of your own. Everything here is plain Keras, so it runs on
# whatever the backend finds. Put your pictures into a folder `pictures` with a folder for each class, of any size,
# light on dark as MNIST's digits are; where there is none, shapes are drawn into it.
#
# In a hosted runtime first upload the wheel of capszoo, which `make wheels` builds into `dist/`, beside this notebook:
# the package is not in the Python Package Index yet.

# %%
# Replaces nothing that is installed: on a machine with JAX and without TensorFlow (a TPU runtime) JAX is the backend.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("tensorflow") is None:
    os.environ["KERAS_BACKEND"] = "jax"
# A folder of this name, such as a clone, is found too, but has no origin. A wheel beside the notebook is taken as well.
spec = importlib.util.find_spec("capszoo")
if spec is None or spec.origin is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--find-links", ".", "capszoo"], check=True)

# %%
# %matplotlib inline
import logging
from pathlib import Path

import keras
import numpy as np
from PIL import Image, ImageDraw

import capszoo
from capszoo import visualize
from capszoo.data import Folder
from capszoo.data.folder import SUFFIXES

# Batches of other sizes are traced anew, as they must be.
logging.getLogger("tensorflow").setLevel(logging.ERROR)
print(keras.backend.backend(), keras.distribution.list_devices())
FOLDER = Path("pictures")
COUNT = int(os.environ.get("CAPSZOO_NOTEBOOK_IMAGES", "240"))


# %%
def drawn(kind, rng):
    """A disc, a ring or a cross somewhere in a picture of 40x40."""
    picture = Image.new("L", (40, 40))
    draw = ImageDraw.Draw(picture)
    x, y, r = rng.integers(15, 25), rng.integers(15, 25), rng.integers(7, 13)
    if kind == "disc":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=255)
    elif kind == "ring":
        draw.ellipse((x - r, y - r, x + r, y + r), outline=255, width=4)
    else:
        draw.line((x - r, y - r, x + r, y + r), fill=255, width=4)
        draw.line((x - r, y + r, x + r, y - r), fill=255, width=4)
    return picture


if not FOLDER.exists():
    rng = np.random.default_rng(0)
    for kind in ("disc", "ring", "cross"):
        (FOLDER / kind).mkdir(parents=True)
        for number in range(COUNT // 3):
            drawn(kind, rng).save(FOLDER / kind / f"{number:03}.png")

# %% [markdown]
# Folders `train` and `test` in it, each with a folder for each class, are the splits; without them a quarter of each
# class is kept for the test. Pictures are read as `classify` reads them: grey, turned as a photograph's EXIF says.

# %%
data = Folder(path=str(FOLDER), size=28, channels=1, test=0.25, validation=0)
train, test = data.open("train"), data.open("test")
names = data.class_names
print(names, "training:", len(train), "test:", len(test))

# %% [markdown]
# `class_names` makes the class capsules new; what is below keeps what it has learnt of MNIST, and learns at a tenth
# of the rate. `compile` takes no loss: the network is trained on its paper's. Labels are integers.

# %%
model = capszoo.load("kernel_mnist", class_names=names, pretrained_rate=0.1)
model.compile(keras.optimizers.Adam(1e-2))
history = model.fit(train.images, train.labels, batch_size=16, epochs=5, verbose=2)

# %%
scores = model.predict(test.images, verbose=0)["scores"]
right = int((scores.argmax(axis=-1) == test.labels).sum())
print("right:", right, "of", len(scores))

# %% [markdown]
# The same network from nothing, in as many steps, is the comparison.

# %%
fresh = capszoo.create("kernel_mnist", class_names=names)
fresh.compile(keras.optimizers.Adam(1e-2))
fresh.fit(train.images, train.labels, batch_size=16, epochs=5, verbose=0)
fresh_scores = fresh.predict(test.images, verbose=0)["scores"]
print("right from nothing:", int((fresh_scores.argmax(axis=-1) == test.labels).sum()), "of", len(scores))

# %% [markdown]
# The file has the classes and the preprocessing in it, and takes paths. Scores of this network compare the classes of
# one picture only: its loss does not feel a number that is added to the logits of all of them. `capszoo finetune`
# chooses that number so that one class is present on average.

# %%
model.save("mine.keras")
again = keras.saving.load_model("mine.keras")
picture = next(path for path in sorted(FOLDER.glob("[!.]*/**/[!.]*")) if path.suffix.lower() in SUFFIXES)
again.classify(picture, resize=True)

# %%
# The test pictures are in the order of their classes.
pictures = test.batch(np.linspace(0, len(test) - 1, 3).astype(int))["images"]
visualize.draw_predictions(pictures, model.predict(pictures, verbose=0)["scores"], names)
