"""The numbers there are of a cell, and what they say together."""

import dataclasses
import statistics

from capszoo.protocols.statistics import few_interval
from capszoo.results.records import Record


@dataclasses.dataclass(frozen=True)
class Ours:
    """The numbers there are of a cell, by seed, as records of published cards or of measurements."""

    records: dict[int, Record]

    def text(self) -> str:
        """The number, or the mean and the deviation of several, with its interval."""
        measurements = [record.measurement for record in self.records.values()]
        show = measurements[0].text
        if len(measurements) == 1:
            low, high = measurements[0].interval
            return f"{show(measurements[0].value)} ({show(low)} to {show(high)})"
        values = [measurement.value for measurement in measurements]
        low, high = few_interval(values)
        if measurements[0].wrong is not None:  # a share
            low, high = max(low, 0.0), min(high, 1.0)
        spread = f"{show(statistics.mean(values))} ± {show(statistics.stdev(values))}"
        return f"{spread} ({show(low)} to {show(high)})"

    @property
    def mean(self) -> float:
        return statistics.mean(record.measurement.value for record in self.records.values())


def ours_of(results, table, name) -> Ours | None:
    """The numbers of a cell; None where there is none."""
    trials = [trial for trial in results.trials(table) if trial.name == name]
    found = {trial.seed: results.record(trial) for trial in trials}
    found = {seed: record for seed, record in found.items() if record}
    return Ours(found) if found else None
