"""Novel viewpoints: two models that do equally well on familiar ones, compared on the others."""

import dataclasses
import typing

from capszoo.config import ConfigError, section
from capszoo.models.architecture import Classifies
from capszoo.protocols.measurement import Measurement
from capszoo.protocols.protocol import Protocol, get_protocol
from capszoo.protocols.report import Report

# Hinton et al. 2018, Table 2: test errors by data set, factor, kind of viewpoint and model.
TABLE_2 = {
    "smallnorb": {
        "azimuth": {
            "familiar": {"cnn": 0.037, "capsules": 0.037},
            "novel": {"cnn": 0.20, "capsules": 0.135},
        },
        "elevation": {
            "familiar": {"cnn": 0.043, "capsules": 0.043},
            "novel": {"cnn": 0.178, "capsules": 0.123},
        },
    }
}
FACTORS = ("azimuth", "elevation")
KINDS = ("novel", "familiar")  # in the order of the table's rows


@dataclasses.dataclass(frozen=True)
class ViewpointReport(Report):
    """One half of Table 2: a factor, and the errors of two models on familiar and on novel viewpoints.

    where:
      factor: "azimuth" or "elevation".
      names, steps: of the models, by column: "cnn" and "capsules"; steps are those after which training was stopped.
      errors: by row ("novel", "familiar") and column; each a `Measurement` with the paper's value, where it
        looked at the data set.
      mismatch: familiar error of the capsules less that of the CNN: how far the two are from being matched.
      reduction: share of the CNN's novel errors that the capsules avoid; None where the CNN makes none.
    """

    factor: str
    names: dict[str, str]
    steps: dict[str, int | None]
    errors: dict[str, dict[str, Measurement]]
    mismatch: float
    reduction: float | None


@section("protocol", "viewpoints")
@dataclasses.dataclass(frozen=True)
class ViewpointProtocol(Protocol):
    """A CNN and capsules, in this order, trained on the same familiar viewpoints, measured on these and on novel ones.

    The capsules should have been stopped where their error on familiar test viewpoints equals the CNN's:
    `train.stop_at_error=<that error> train.stop_split=test`.

    Errors: `ConfigError` for models of different data sets and for ones that know all viewpoints; `DataNotFound`.
    Source: Hinton et al. 2018, section 5.1 and Table 2.
    Differs from the paper: it does not say how near "matched" is, nor between which steps it looked. Training here
    looks after every epoch, so that the capsules can be better than the CNN; `mismatch` says by how much.
    """

    source: typing.ClassVar[str] = "Hinton et al. 2018, section 5.1 and Table 2"
    metric: typing.ClassVar[str] = "test error"
    role: typing.ClassVar[type] = Classifies
    models: typing.ClassVar[tuple[int, int | None]] = (2, 2)

    def measured(self, subjects, command, progress):
        columns = dict(zip(("cnn", "capsules"), subjects, strict=True))
        factor = _common_factor(*subjects)
        papers = TABLE_2.get(subjects[0].recipe.data.benchmark)
        errors = {kind: {} for kind in KINDS}
        for kind in KINDS:
            protocol = get_protocol(f"{kind}_{factor}s")
            for column, subject in columns.items():
                measured = protocol.measure([subject], command=command, progress=progress)
                errors[kind][column] = dataclasses.replace(
                    measured, paper=papers[factor][kind][column] if papers else None
                )
        values = {kind: {column: m.value for column, m in row.items()} for kind, row in errors.items()}
        novel = values["novel"]
        return ViewpointReport(
            factor=factor,
            names={column: subject.name for column, subject in columns.items()},
            steps={column: subject.step for column, subject in columns.items()},
            errors=errors,
            mismatch=values["familiar"]["capsules"] - values["familiar"]["cnn"],
            reduction=1 - novel["capsules"] / novel["cnn"] if novel["cnn"] else None,
        )

    def rows(self, result):
        rows = []
        for kind, errors in result.errors.items():
            row = {result.factor: kind}
            for column, m in errors.items():
                row[f"{column}: {result.names[column]}"] = f"{m.value:.2%} (n={m.n})"
                row[f"paper's {column}"] = "" if m.paper is None else f"{m.paper:.1%}"
            rows.append(row)
        return rows

    def notes(self, result):
        steps = ", ".join(f"{column} {step}" for column, step in result.steps.items())
        return [
            f"familiar error of the capsules less that of the CNN: {result.mismatch:+.2%}; training steps: {steps}"
        ]


def _common_factor(cnn, capsules):
    """The factor whose familiar values both models were trained on. Errors: `ConfigError`."""
    if cnn.recipe.data != capsules.recipe.data:
        raise ConfigError(
            f"both models must be trained on the same data. Received: {cnn.recipe.data} and {capsules.recipe.data}"
        )
    factor = cnn.recipe.data.views.removeprefix("familiar ")
    if factor not in FACTORS:
        raise ConfigError(
            "models trained with data.views='familiar azimuth' or 'familiar elevation' are needed. "
            f"Received: {factor!r}"
        )
    return factor
