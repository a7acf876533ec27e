"""Tiny sets of colour pictures of several sizes: stripes that lie, stand or lean, so that small nets learn them."""

import numpy as np
from PIL import Image

CLASSES = ("leaning", "lying", "standing")


def draw(label, seed, side=24):
    """A picture uint8 `[side, side + seed % 3, 3]` of a class."""
    rng = np.random.default_rng((label, seed))
    y, x = np.mgrid[:side, : side + seed % 3]
    phase = (x + y, y, x)[label] + rng.integers(6)
    stripes = (phase % 6 < 3)[..., None] * rng.integers(150, 256, 3)
    return stripes.astype(np.uint8)


def seed_of(split):
    """The seed of the first picture of a split: of the same width in all of them."""
    return 999 * split


def write_folder(folder, count=30, splits=("",)):
    """`count` PNG files of each class in its folder, for each of the splits."""
    for number, split in enumerate(splits):
        for label, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                picture = Image.fromarray(draw(label, seed_of(number) + i))
                picture.save(folder / split / name / f"{i}.png")
    return folder


def prepare(folder, name, count=20, test=None):
    """The same pictures as TensorFlow Datasets prepares a set, with one split; or a test split too.

    where:
      test: "labelled" or "secret", which labels the test split has; None for no such split.
    """
    import tensorflow as tf
    import tensorflow_datasets as tfds

    examples = [(label, i) for i in range(count) for label in range(len(CLASSES))]

    def generate(told):
        for label, i in examples:
            yield {"image": draw(label, i), "label": label if told else -1}

    def dataset(told):
        return tf.data.Dataset.from_generator(lambda: generate(told), output_signature=signature)

    signature = {
        "image": tf.TensorSpec((None, None, 3), tf.uint8),
        "label": tf.TensorSpec((), tf.int64),
    }
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        features=tfds.features.FeaturesDict(
            {"image": tfds.features.Image(), "label": tfds.features.ClassLabel(names=list(CLASSES))}
        ),
        split_datasets={"train": dataset(True)} | ({"test": dataset(test == "labelled")} if test else {}),
        data_dir=str(folder),
    )
