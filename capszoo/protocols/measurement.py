"""What a protocol gives: a number, and all that is needed to measure it again."""

import dataclasses

from capszoo.protocols.report import Report


@dataclasses.dataclass(frozen=True)
class Measurement(Report):
    """One number, and all that is needed to measure it again.

    where:
      protocol: name of the protocol that measured it.
      metric: what the number is, e.g. "test error".
      value: a share in [0, 1] of images (or pairs) that were wrong, or the mean over images of a number in `unit`.
      interval: of 95 %; Wilson's for a share. wrong: images that were wrong, None for a mean; n: all images.
      data, split, fingerprint: what it was measured on, and the SHA-256 of that.
      paper: the paper's value for the same protocol, or None.
      seeds: trainings behind the number.
      command, date, revision, backend: how, when, with which code and libraries it was measured.
    """

    protocol: str
    metric: str
    value: float
    interval: tuple[float, float]
    wrong: int | None
    n: int
    data: str
    split: str
    fingerprint: str
    paper: float | None
    seeds: int
    command: str
    date: str
    revision: str
    backend: str
    unit: str = ""

    def text(self, value) -> str:
        """`value`, the measured one or another, as text: per cent for a share."""
        return f"{value:.3f}" if self.wrong is None else f"{value:.2%}"

    def sentence(self) -> str:
        """The number as text: value, interval, n, data, the paper's value beside it."""
        low, high = map(self.text, self.interval)
        number = f"{self.text(self.value)} {self.unit}".rstrip()
        paper = "the paper has no number" if self.paper is None else f"paper {self.text(self.paper)}"
        count = f"mean of {self.n}" if self.wrong is None else f"{self.wrong} of {self.n}"
        return f"{self.metric} {number} ({count}, 95 % interval {low} to {high}) on {self.data} {self.split}; {paper}"
