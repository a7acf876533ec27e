# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Routing by agreement, step by step
#
# Children vote for the poses of their parents; routing decides which votes count. Here it is first written down
# in NumPy for a handful of votes, then compared with `capszoo.routing.DynamicRouting`, then watched in a trained
# network.
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
import keras
import numpy as np

import capszoo
from capszoo import visualize
from capszoo.data import samples
from capszoo.routing import DynamicRouting

# %% [markdown]
# Six children, two possible parents, poses of two numbers. Four children agree about parent 0; nobody agrees
# about parent 1.

# %%
rng = np.random.default_rng(0)
votes = rng.normal(size=(6, 2, 2)).astype("float32")  # [I, O, D]
votes[:4, 0] = [1.0, 0.5] + 0.05 * rng.normal(size=(4, 2))


# %% [markdown]
# Sabour et al. 2017, equations 1 to 3 and Procedure 1:
#
#     c_ij = exp(b_ij) / sum_k exp(b_ik)
#     s_j  = sum_i c_ij u_ij
#     v_j  = |s_j|^2 / (1 + |s_j|^2) * s_j / |s_j|
#     b_ij <- b_ij + u_ij . v_j


# %%
def squash(s):
    norm = np.linalg.norm(s, axis=-1, keepdims=True)
    return norm**2 / (1 + norm**2) * s / norm


logits = np.zeros((6, 2))
for iteration in range(3):
    coefficients = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    parents = squash((coefficients[..., None] * votes).sum(axis=0))
    lengths = np.linalg.norm(parents, axis=-1)
    print(
        f"iteration {iteration + 1}: share of child 0 for parent 0 {coefficients[0, 0]:.3f}, lengths {lengths.round(3)}"
    )
    logits = logits + (votes * parents).sum(axis=-1)

# %% [markdown]
# Child 0 goes over to the parent about which it agrees with others: its share grows from a half. The layer of the zoo
# computes the same:

# %%
routing = DynamicRouting(num_iterations=3, use_bias=False)
poses, activations, history = routing(votes[None], return_history=True)
print("largest difference:", float(np.abs(keras.ops.convert_to_numpy(poses)[0] - parents).max()))
assert np.allclose(keras.ops.convert_to_numpy(poses)[0], parents, atol=1e-4)

# %% [markdown]
# In a trained network: which types of children are routed to which digit, for one picture.

# %%
model = capszoo.load("dynamic_mnist")
images, labels = samples.digits()
picture = images[6:7]
routed = visualize.coefficients(model, picture)
visualize.draw_coefficients(routed, types=32)

# %% [markdown]
# And from where in the picture. Squares stand where the children look.

# %%
visualize.draw_over_image(
    picture[0],
    visualize.coefficient_maps(model, picture)[0],
    visualize.child_centres(model),
    "activation times coefficient",
)

# %% [markdown]
# A child that is undecided has an entropy of ln 10 over the ten digits; a decided one has 0. Iterations lower the
# mean, though little: most children see hardly anything, and stay undecided.

# %%
for iteration, entropy in enumerate(visualize.coefficient_entropy(routed).mean(axis=(1, 2)), start=1):
    print(f"iteration {iteration}: mean entropy {entropy:.3f} of {np.log(10):.3f} nats")
