"""The TensorFlow Datasets builder `synthnorb`, with the features of TFDS's `smallnorb`."""

import tensorflow_datasets as tfds

from capszoo.data.synthnorb.renderer import AZIMUTHS, ELEVATIONS, LIGHTINGS, SIZE
from capszoo.data.synthnorb.scenes import INSTANCES, MODELS, examples


class Synthnorb(tfds.core.GeneratorBasedBuilder):
    """5 categories x 5 instances x 9 elevations x 18 azimuths x 6 lightings in each split: 24,300 stereo pairs.

    Args:
        seed: decides proportions, posture and azimuth zero of every toy; kept in `info.metadata["seed"]`.
        processes: how many render at the same time; the images do not depend on it.
        **kwargs: see `tfds.core.DatasetBuilder`.
    """

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, *, seed: int = 0, processes: int = 2, **kwargs):
        self._seed, self._processes = seed, processes
        super().__init__(**kwargs)

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            description="Rendered toys with the factors of smallNORB; a result on them is not one on smallNORB.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(SIZE, SIZE, 1)),
                    "image2": tfds.features.Image(shape=(SIZE, SIZE, 1)),
                    "label_category": tfds.features.ClassLabel(names=list(MODELS)),
                    "instance": tfds.features.ClassLabel(num_classes=sum(map(len, INSTANCES.values()))),
                    "label_elevation": tfds.features.ClassLabel(num_classes=len(ELEVATIONS)),
                    "label_azimuth": tfds.features.ClassLabel(num_classes=len(AZIMUTHS)),
                    "label_lighting": tfds.features.ClassLabel(num_classes=len(LIGHTINGS)),
                }
            ),
            supervised_keys=("image", "label_category"),
            metadata=tfds.core.MetadataDict(seed=self._seed),
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in INSTANCES}

    def _generate_examples(self, split):
        for number, (factors, left, right) in enumerate(examples(self._seed, split, self._processes)):
            yield number, {"image": left, "image2": right, **factors}
