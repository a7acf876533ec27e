"""What every data set says of itself."""

import abc

from capszoo.data.split import Split


class DataSet(abc.ABC):
    """A data set and the options it is read with; a frozen dataclass registered in section `data` of a recipe.

    where:
      num_classes, class_names: how many classes there are, and their names in the order of the labels.
      licence: whose the data are and on what terms.
      labels_per_image: classes in one image; labels are `[n]` for one, `[n, k]` for k.
      image_shape: `(H, W, C)` of the images a model is given.
      raw_shape: `(H, W, C)` of pictures as they are before `preprocessing`.
      preprocessing: arguments of `capszoo.data.preprocessing.Preprocessing` that turn the one into the other.
      validation: how many training images are taken out for validation, where that is an option; validates: whether
        there is a validation split, which is so unless `validation` is 0 or the class says otherwise.
      light_on_dark: whether its pictures are light things on a dark ground, as MNIST's digits.
      views: which viewpoints there are, "all" unless some are left out.
      set_name: what cards and results call it: its name in a recipe or, where one section reads many sets, its option
        `set`; of a folder of pictures also the folder's name.
      benchmark: the published data set whose numbers in papers stand beside those on this one: itself, or that of
        which it is a twin.
      raw: the data set with the same pictures before `preprocessing`, of `raw_shape`; itself where there is none.
      unstandardised: the data set with the same images before they are standardised, in [0, 1]; itself where they stay
        as they are.
    """

    num_classes: int
    class_names: tuple[str, ...]
    licence: str
    labels_per_image = 1
    light_on_dark = False
    validation = None
    views = "all"

    @property
    @abc.abstractmethod
    def image_shape(self) -> tuple[int, int, int]: ...

    @property
    def raw_shape(self) -> tuple[int, int, int]:
        return self.image_shape

    @property
    def preprocessing(self) -> dict:
        return {}

    @property
    def set_name(self) -> str:
        return getattr(self, "set", "") or self.section_name

    @property
    def benchmark(self) -> str:
        return self.set_name

    @property
    def validates(self) -> bool:
        return self.validation != 0

    @property
    def raw(self) -> "DataSet":
        return self

    @property
    def unstandardised(self) -> "DataSet":
        return self

    @abc.abstractmethod
    def open(self, split: str) -> Split:
        """The split "train", "validation" or "test". Errors: `DataNotFound`; `ValueError` for another name."""
