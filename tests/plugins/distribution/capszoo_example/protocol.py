"""Errors on pictures that are darker than those of the training."""

import dataclasses
import typing

from capszoo.config import section
from capszoo.protocols import ShareOfWrong
from capszoo.training.scoring import predict_split


@section("protocol", "dark_error")
@dataclasses.dataclass(frozen=True)
class DarkError(ShareOfWrong):
    """The test error on pictures that are darker by a factor."""

    factor: float = 0.5

    source: typing.ClassVar[str] = "nobody 2026, section 1"

    def predict(self, model, split, progress):
        class Dark:
            def predict_on_batch(_, images):
                return model.predict_on_batch(self.factor * images)

        return predict_split(Dark(), split, progress=progress)
