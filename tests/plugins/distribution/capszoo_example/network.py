"""The network of Sabour et al. 2017 with another routing."""

import dataclasses
import typing

from capszoo.config import section
from capszoo.models import DynamicCapsNet
from capszoo_example.routing import LengthRouting


@section("model", "example")
@dataclasses.dataclass(frozen=True)
class ExampleNet(DynamicCapsNet):
    """As `DynamicCapsNet`, with `LengthRouting`."""

    routing: typing.Literal["length"] = "length"
    decoder: bool = False
    channels: int = 4
    primary_types: int = 2

    paper: typing.ClassVar[str] = "nobody 2026"

    def _routing(self):
        return LengthRouting(self.num_iterations, name="routing")
