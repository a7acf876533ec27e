"""Whether routing helps: test errors with and without routing, with and without decoder."""

import dataclasses

from capszoo.config import ConfigError
from capszoo.progress import QUIET
from capszoo.protocols.classification import evaluate
from capszoo.protocols.measurement import Measurement
from capszoo.protocols.report import Report

# Kiefer et al. 2022, appendix A: test errors by routing and decoder, one training each.
APPENDIX_A = {
    "routing, decoder": 0.0077,
    "no routing, decoder": 0.0066,
    "routing, no decoder": 0.0068,
    "no routing, no decoder": 0.0071,
}


@dataclasses.dataclass(frozen=True)
class RoutingComparison(Report):
    """Test errors by condition, a key of `APPENDIX_A`; each a `Measurement` with the paper's value; and the models."""

    errors: dict[str, Measurement]
    names: dict[str, str]


def condition_of(model) -> str:
    """The condition of an architecture, a key of `APPENDIX_A`."""
    routing = "no routing" if model.routing in ("sum", "mean") else "routing"
    return f"{routing}, {'decoder' if model.decoder else 'no decoder'}"


def compare_routing(subjects, *, command="", progress=QUIET) -> RoutingComparison:
    """Measures `Subject`s of the same data that differ in `model.routing` and `model.decoder`, as appendix A does.

    Errors: `ConfigError` for two models of one condition, for other architectures and for different data.
    Source: Kiefer et al. 2022, appendix A.
    """
    errors, names = {}, {}
    for subject in subjects:
        if not hasattr(subject.recipe.model, "decoder"):
            name = subject.recipe.model.section_name
            raise ConfigError(f"models such as 'predictive_coding' are needed. Received: {name!r}")
        if subject.recipe.data != subjects[0].recipe.data:
            raise ConfigError(f"models must be trained on the same data. Received: {subject.recipe.data}")
        condition = condition_of(subject.recipe.model)
        if condition in errors:
            raise ConfigError(f"one model of each condition is needed. Received two of {condition!r}")
        measured = evaluate(subject.model, subject.recipe, "test_error", command=command, progress=progress)
        errors[condition] = dataclasses.replace(measured, paper=APPENDIX_A[condition])
        names[condition] = subject.name
    return RoutingComparison(errors, names)
