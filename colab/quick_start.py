# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # capszoo: quick start
#
# A pretrained capsule network, what it says of drawn digits, and what the numbers mean. It needs no data set and
# no GPU.
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
import capszoo
from capszoo import visualize
from capszoo.data import samples

capszoo.list_models("*mnist*", routing="dynamic", pretrained=True)

# %% [markdown]
# Every preset has a card: what the weights were trained on, what was measured of them, and the paper's number.

# %%
print(capszoo.describe("dynamic_mnist")[:1500])

# %%
images, labels = samples.digits()  # drawn for this package; they are not MNIST's
model = capszoo.load("dynamic_mnist")
outputs = model.predict(model.preprocess(images), verbose=0)
{name: output.shape for name, output in outputs.items()}

# %% [markdown]
# `scores` are the lengths of the ten digit capsules, from 0 to 1; `poses` are the capsules themselves.

# %%
print("right:", int((outputs["scores"].argmax(axis=-1) == labels).sum()), "of", len(labels))

# %%
visualize.draw_predictions(
    images[4:7], outputs["scores"][4:7], list("0123456789"), reconstructions=outputs["reconstruction"][4:7]
)

# %% [markdown]
# The decoder draws a digit from the pose of its capsule alone. One dimension of the pose changed at a time shows
# what the dimensions have come to mean (figure 4 of Sabour et al. 2017).

# %%
visualize.draw_perturbations(
    visualize.perturbations(model, images[4:5], dimensions=range(6)), dimensions=range(6)
)
