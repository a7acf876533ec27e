"""Whether routing helps: test errors with and without routing, with and without decoder."""

import dataclasses
import typing

from capszoo.config import ConfigError, section
from capszoo.models.architecture import Classifies
from capszoo.models.dynamic import DynamicCapsNet
from capszoo.protocols.classification import OwnError
from capszoo.protocols.measurement import Measurement
from capszoo.protocols.protocol import Protocol
from capszoo.protocols.report import Report

# Kiefer et al. 2022, appendix A: test errors by routing and decoder, one training each.
APPENDIX_A = {
    "routing, decoder": 0.0077,
    "no routing, decoder": 0.0066,
    "routing, no decoder": 0.0068,
    "no routing, no decoder": 0.0071,
}


@dataclasses.dataclass(frozen=True)
class RoutingReport(Report):
    """Test errors by condition, a key of `APPENDIX_A`; each a `Measurement` with the paper's value; and the models."""

    errors: dict[str, Measurement]
    names: dict[str, str]


def condition_of(model) -> str:
    """The condition of an architecture, a key of `APPENDIX_A`."""
    routing = "no routing" if model.routing in ("sum", "mean") else "routing"
    return f"{routing}, {'decoder' if model.decoder else 'no decoder'}"


@section("protocol", "routing_comparison")
@dataclasses.dataclass(frozen=True)
class RoutingProtocol(Protocol):
    """Test errors of models of the same data that differ in `model.routing` and `model.decoder`.

    Errors: `ConfigError` for two models of one condition, for other architectures and for different data.
    Source: Kiefer et al. 2022, appendix A.
    """

    source: typing.ClassVar[str] = "Kiefer et al. 2022, appendix A"
    metric: typing.ClassVar[str] = "test error"
    role: typing.ClassVar[type] = Classifies
    models: typing.ClassVar[tuple[int, int | None]] = (1, None)

    def measured(self, subjects, command, progress):
        errors, by_condition = {}, _by_condition(subjects)
        papers = APPENDIX_A if subjects[0].recipe.data.benchmark == "mnist" else {}
        for condition, subject in by_condition.items():
            measured = OwnError().measure([subject], command=command, progress=progress)
            # The paper has neither a mean of votes nor a way out for them.
            of_paper = subject.recipe.model.routing in ("sum", "dynamic")
            errors[condition] = dataclasses.replace(
                measured, paper=papers.get(condition) if of_paper else None
            )
        return RoutingReport(errors, {condition: subject.name for condition, subject in by_condition.items()})

    def rows(self, result):
        number = OwnError()
        return [
            {"condition": condition, "model": result.names[condition], **number.rows(measurement)[0]}
            for condition, measurement in result.errors.items()
        ]


def _by_condition(subjects):
    """The subjects by condition. Errors: `ConfigError`, see `RoutingProtocol`."""
    found = {}
    for subject in subjects:
        if not isinstance(subject.recipe.model, DynamicCapsNet):
            name = subject.recipe.model.section_name
            raise ConfigError(f"models such as 'predictive_coding' are needed. Received: {name!r}")
        if subject.recipe.data != subjects[0].recipe.data:
            raise ConfigError(f"models must be trained on the same data. Received: {subject.recipe.data}")
        condition = condition_of(subject.recipe.model)
        if condition in found:
            raise ConfigError(f"one model of each condition is needed. Received two of {condition!r}")
        found[condition] = subject
    return found
