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
        show, low, high = self._measurements[0].text, *self.interval
        number = show(self.mean)
        if len(self.records) > 1:
            deviation = statistics.stdev(self._values)
            number += f" ± {show(deviation)}"
            if not deviation:  # no interval of a mean either, however few trainings agree
                return number
        return f"{number} ({show(low)} to {show(high)})"

    @property
    def interval(self) -> tuple[float, float]:
        """Of 95 %: of one training that of its measurement, of several that of their mean."""
        first = self._measurements[0]
        if len(self.records) == 1:
            return first.interval
        low, high = few_interval(self._values)
        return (low, high) if first.wrong is None else (max(low, 0.0), min(high, 1.0))

    @property
    def mean(self) -> float:
        return statistics.mean(self._values)

    @property
    def _measurements(self):
        return [record.measurement for record in self.records.values()]

    @property
    def _values(self):
        return [measurement.value for measurement in self._measurements]


def ours_of(results, table, name) -> Ours | None:
    """The numbers of a cell; None where there is none."""
    trials = [trial for trial in results.trials(table) if trial.name == name]
    found = {trial.seed: results.record(trial) for trial in trials}
    found = {seed: record for seed, record in found.items() if record}
    return Ours(found) if found else None
