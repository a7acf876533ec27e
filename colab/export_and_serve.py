# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Export and serve
#
# A SavedModel for TensorFlow Serving and LiteRT files for phones, from a pretrained preset. This one needs
# TensorFlow: on a TPU runtime take a CPU runtime instead.
#
# In a hosted runtime first upload the wheel of capszoo, which `make wheels` builds into `dist/`, beside this notebook:
# the package is not in the Python Package Index yet.

# %%
# Replaces nothing that is installed.
import importlib.metadata
import importlib.util
import subprocess
import sys


def install(module, *words):
    # A folder of the name, such as a clone, is found too, but has no origin.
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *words], check=True)


# A wheel beside the notebook is taken as well.
install("capszoo", "--find-links", ".", "capszoo")
install("ai_edge_litert", "ai-edge-litert")
# Of the age of the protobuf that TensorFlow came with.
install("tf2onnx", "tf2onnx", "onnxruntime", f"protobuf=={importlib.metadata.version('protobuf')}")
# Of TensorFlow's own age, and without its requirements, which would replace TensorFlow.
major, minor, *_ = importlib.metadata.version("tensorflow").split(".")
install("tensorflow_serving", "--no-deps", f"tensorflow-serving-api<={major}.{minor}.99")

# %%
# %matplotlib inline
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import capszoo
from capszoo.data import samples

tf.get_logger().setLevel("ERROR")
folder = Path(tempfile.mkdtemp())
model = capszoo.load("matrix_em_mnist")
report = capszoo.export(model, folder, name="matrix_em_mnist", image_shape=model.preset.recipe.data.raw_shape)
for artefact, outputs in report["deviations"].items():
    print(f"{artefact:16} {max(outputs.values()):.1e}")

# %% [markdown]
# Every artefact was reloaded in a process without capszoo and compared with the Keras model; the deviations are
# above. The folder is what TensorFlow Serving expects:

# %%
bundle = folder / "matrix_em_mnist" / "1"
for path in sorted(bundle.rglob("*")):
    if path.is_file():
        print(f"{path.stat().st_size:>10,}  {path.relative_to(folder)}")

# %% [markdown]
# What a server answers, here asked through TensorFlow alone: raw images in, activations of the class capsules out.
# Preprocessing is inside.

# %%
images, labels = samples.digits()
served = tf.saved_model.load(str(bundle)).signatures["serving_default"](images=tf.constant(images))["scores"]

figure, axes = plt.subplots(2, 5, figsize=(10, 4), layout="constrained")
for column, axis in enumerate(axes.T):
    axis[0].imshow(images[column, ..., 0], cmap="gray")
    axis[0].set_title(f"a drawn {labels[column]}")
    axis[0].axis("off")
    axis[1].bar(range(10), served[column])
    axis[1].set(ylim=(0, 1), xticks=range(10), xlabel="class")
axes[1, 0].set_ylabel("score")
plt.show()

# %% [markdown]
# Images that are none are refused, and the error says what was received:

# %%
try:
    tf.saved_model.load(str(bundle)).signatures["serving_default"](images=tf.constant(images * 255))
except tf.errors.InvalidArgumentError as error:
    print(next(line for line in str(error).splitlines() if "images" in line))

# %% [markdown]
# The same network for phones and small boards, with weights of half the bytes:

# %%
(path,) = bundle.glob("litert/*.float16.tflite")
runner = Interpreter(str(path)).get_signature_runner("serving_default")
phone = runner(images=images)["scores"]
print(
    "same answers:", int((phone.argmax(axis=-1) == served.numpy().argmax(axis=-1)).sum()), "of", len(labels)
)
print("largest difference:", float(np.abs(phone - served.numpy()).max()))

# %% [markdown]
# A checkout of capszoo has a published bundle of it, and serves that by
# `docker compose -f export/serving/docker-compose.yaml up`. A request with an
# encoded picture is then
#
#     curl -d '{"signature_name": "predict_bytes", "instances": [{"image_bytes": {"b64": "..."}}]}' \
#       localhost:8501/v1/models/matrix_em_mnist:predict
#
# and `export/README.md` has clients, Kubernetes, KServe and batching.
