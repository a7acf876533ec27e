"""Pictures of toys or other objects, some of which train and others test, from viewpoints that are known."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from capszoo.data.cropping import CroppedImages, CroppedSplit


@dataclasses.dataclass(frozen=True)
class ObjectImages(CroppedImages):
    """Options of data sets whose test objects are never seen in training.

    where:
      size to stretch: see `CroppedImages`.
      validation_instance: the training object of each category that is kept for validation, one of
        `train_instances`; None trains on all and has no validation split.
      views: which viewpoints there are, in every split: a key of `viewpoints`.
      train_instances: the objects of each category that train or validate.
      viewpoints: by name the codes that factors have there; the novel viewpoints of a factor are those of the test for
        networks that were trained on its familiar ones (Hinton et al. 2018, section 5.1).

    Errors: `ValueError` for an option out of range; `DataNotFound` from `open`.
    """

    validation_instance: int | None = None
    views: Literal["all", "familiar azimuth", "novel azimuth", "familiar elevation", "novel elevation"] = (
        "all"
    )

    train_instances: ClassVar[tuple[int, ...]]
    viewpoints: ClassVar[Mapping[str, Mapping[str, tuple[int, ...]]]]

    def __post_init__(self):
        super().__post_init__()
        if self.validation_instance not in (None, *self.train_instances):
            expected = f"validation_instance must be None or one of {self.train_instances}"
            raise ValueError(f"{expected}. Received: {self.validation_instance!r}")
        if self.views not in self.viewpoints:
            raise ValueError(f"views must be one of {', '.join(self.viewpoints)}. Received: {self.views!r}")

    @property
    def validates(self) -> bool:
        return self.validation_instance is not None

    @abc.abstractmethod
    def read(self, split: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Images uint8 [N, size, size, C] of the published split "train" or "test", and their codes by factor.

        Among the factors are `category`, `instance` and those of `viewpoints`.
        """

    def open(self, split: str) -> CroppedSplit:
        """The split "train", "validation" or "test"."""
        if split not in ("train", "validation", "test"):
            raise ValueError(f"a split is one of train, validation, test. Received: {split!r}")
        if split == "validation" and self.validation_instance is None:
            raise ValueError("there is no validation split without validation_instance. Received: None")
        images, factors = self.read("test" if split == "test" else "train")
        keep = np.ones(len(images), bool)
        if split != "test":
            keep = (factors["instance"] == self.validation_instance) == (split == "validation")
        for name, codes in self.viewpoints[self.views].items():
            keep &= np.isin(factors[name], codes)
        factors = {name: codes[keep] for name, codes in factors.items()}
        return CroppedSplit(images[keep], factors.pop("category"), factors, self, augmented=split == "train")
