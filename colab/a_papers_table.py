# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # A paper's table
#
# Table 3 of Faria 2019 compares three routings, here in one network. Our numbers are those of the cards: each was
# written by the command that stands in the last column, which measures it again.
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
from IPython.display import Markdown
from matplotlib.figure import Figure

import capszoo

NAMES = ["kernel_mnist", "lstm_mnist", "consensus_em_mnist"]
metrics = {name: capszoo.get_preset(name).card.metrics[0] for name in NAMES}

# %%
rows = [
    f"| {name} | {m.text(m.value)} | {m.text(m.interval[0])} to {m.text(m.interval[1])} | "
    f"{'' if m.paper is None else m.text(m.paper)} | `{m.command}` |"
    for name, m in metrics.items()
]
Markdown(
    "\n".join(
        ["| preset | test error | 95 % interval | paper | measured by |", "|---|---|---|---|---|", *rows]
    )
)

# %%
figure = Figure(figsize=(6, 2.5), layout="constrained")
axes = figure.subplots()
for row, m in enumerate(metrics.values()):
    low, high = m.interval
    axes.errorbar(
        100 * m.value,
        row,
        xerr=[[100 * (m.value - low)], [100 * (high - m.value)]],
        fmt="o",
        color="tab:blue",
    )
    if m.paper is not None:
        axes.plot(100 * m.paper, row, "x", color="tab:red")
axes.set_yticks(range(len(NAMES)), NAMES)
axes.set(
    xlabel="test error on MNIST, per cent (blue: ours with 95 % interval; red: the paper's)", xlim=(0, None)
)
figure

# %% [markdown]
# How the networks were trained, and how they differ from the paper, is in their cards too:

# %%
for name in NAMES:
    card = capszoo.get_preset(name).card
    print(f"{name}: {card.parameters:,} parameters, {card.training['epochs']} epochs")
    for text in card.deviations:
        print("  -", text)
