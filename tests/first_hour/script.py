"""The first hour: run in a folder with `pictures/CLASS/*.png`, with capszoo installed as a wheel.

Beside the pictures lie the guide `start.md` and the script of the notebook, `quick_start.py`.
"""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

COMMAND = [sys.executable, "-m", "capszoo"]


def step(number, what):
    print(f"step {number}: {what}", flush=True)


def refused(use, *words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - each word of the message is looked for
        use()
    assert all(word in str(caught.value) for word in words), caught.value


def command(*arguments):
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Start-up lines of libraries are not what was asked for.
    assert "cuda" not in done.stderr.lower(), done.stderr
    return done.stdout


import capszoo  # noqa: E402

assert "keras" not in sys.modules
assert "site-packages" in capszoo.__file__, capszoo.__file__
step(1, "installed")

model = capszoo.load("matrix_em_mnist")
picture = Path(capszoo.__file__).parent / "data" / "samples" / "digits" / "3_a.png"
digit = np.asarray(Image.open(picture).convert("L"))[None, ..., None]
answer = model.classify(picture, top=2)
assert next(iter(answer)) == "3", answer
assert model.classify(Image.open(picture), top=2) == answer
assert np.argmax(model.predict(digit, verbose=0)["scores"]) == 3
step(2, "loaded, and classifies a path, a PIL image and bytes")

unit = digit / np.float32(255)
refused(lambda: model.predict(unit * 255), "[0, 1]", "255")
refused(lambda: model.predict(np.where(unit > 0.5, np.nan, unit)), "NaN")
refused(lambda: model.predict(unit[..., 0]), "[B, 28, 28, 1]", "model.preprocess")
refused(lambda: model.predict(unit.transpose(0, 3, 1, 2)), "channels first")
refused(lambda: model.predict(np.repeat(unit, 3, axis=-1)), "3 channels instead of 1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    toys = capszoo.load("matrix_em_smallnorb")
refused(lambda: toys.predict(np.full((1, 32, 32, 2), 0.5, "float32")), "model.preprocess")
step(3, "wrong inputs are refused")

import keras  # noqa: E402

files = sorted(Path("pictures").glob("*/*.png"))
names = sorted({path.parent.name for path in files})
own = capszoo.load("matrix_em_mnist", class_names=names, pretrained_rate=0.3)
images = np.stack([np.asarray(Image.open(path).convert("L").resize((28, 28))) for path in files])[..., None]
labels = np.array([names.index(path.parent.name) for path in files])
own.compile(keras.optimizers.Adam(3e-3))
refused(lambda: own.fit(images, labels + 1, verbose=0), "3 classes")
refused(lambda: own.compile("adam", loss="sparse_categorical_crossentropy"), "compile(optimizer)")
losses = own.fit(images, labels[:, None], epochs=8, batch_size=9, verbose=0).history
assert losses["accuracy"][-1] > 0.6, losses
step(4, "fitted to one's own classes, with labels in a column")

frozen = capszoo.load("matrix_em_mnist", class_names=names, freeze="class_capsules")
before = np.array(frozen.get_layer("conv1").kernel)
frozen.compile("adam")
frozen.fit(images, np.eye(len(names))[labels], batch_size=9, verbose=0)
assert np.array_equal(before, np.array(frozen.get_layer("conv1").kernel))
assert {weight.path.partition("/")[0] for weight in frozen.trainable_weights} == {"class_capsules"}
step(5, "frozen below the class capsules")


with warnings.catch_warnings():
    warnings.simplefilter("error", UserWarning)
    wrapped = keras.Model(own.input, own.output["scores"])
    expected = own.predict(unit, verbose=0)["scores"]
    np.testing.assert_allclose(wrapped.predict(unit, verbose=0), expected, atol=1e-5)
step(6, "wrapped in keras.Model, without a warning of slow routing")

own.save("own.keras")
reading = (
    "import capszoo, keras; model = keras.saving.load_model('own.keras'); "
    "print(*model.class_names, model.preset.name, *model.classify(model.preprocess("
    "__import__('numpy').zeros((1, 28, 28, 1), 'float32')).numpy()[0]))"
)
done = subprocess.run([sys.executable, "-c", reading], capture_output=True, text=True, check=False)
assert done.stdout.split()[: len(names) + 1] == [*names, "matrix_em_mnist"], done.stderr
step(7, "saved, and read in a fresh process")

out = command("finetune", "matrix_em_mnist", "pictures", "train.epochs=4", "--out", "runs/own")
assert "test error" in out, out
assert Path("runs/own/card.json").is_file()
step(8, "fine-tuned on a folder by one command")

out = command("predict", files[0], "--model", "runs/own", "--resize")
assert out.split()[1] in names, out
step(9, "the run predicts")

command("export", "runs/own", "--out", "bundles")
assert Path("bundles/own/1/assets.extra/labels.txt").read_text().split() == names
again = keras.saving.load_model("own.keras")
report = capszoo.export(again, "bundles", name="reloaded")
assert report["class_names"] == names
step(10, "the run and the reloaded model are exported")

# The guide and the notebook as they are published, beside this script.
code = re.findall(
    r"^```python\n(.*?)^```", Path("start.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)
assert code
for block in code:
    said = {}
    exec(block, said)
    assert list(said["outputs"]["scores"].argmax(axis=-1)[:3]) == list(said["labels"][:3])
step(11, "the guide's first lines do what they say")

done = subprocess.run(
    [sys.executable, "quick_start.py"],
    env={**os.environ, "MPLBACKEND": "agg"},
    capture_output=True,
    text=True,
    check=False,
)
assert done.returncode == 0, done.stderr
assert re.search(r"right: (19|20) of 20", done.stdout), done.stdout
step(12, "the quick start's notebook runs")
