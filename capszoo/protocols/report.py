"""What reports of several measurements have in common."""

import dataclasses
import json

from capszoo.protocols import provenance


def plain(value):
    """A value of a report as JSON knows it."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@dataclasses.dataclass(frozen=True)
class Report:
    """Plain values that go to a file as JSON."""

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_mapping(), indent=1) + "\n"

    def to_mapping(self) -> dict:
        """The report as plain data; a field that only drawings need, `drawn`, is left out."""
        kept = (field.name for field in dataclasses.fields(self) if not field.metadata.get("drawn"))
        return {name: plain(getattr(self, name)) for name in kept}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredReport(Report):
    """A report that says of which images it is, and all that is needed to measure them again.

    where:
      n, data, split, fingerprint: how many images of which split.
      command, date, revision, backend: as in `capszoo.protocols.measurement.Measurement`.
    """

    n: int
    data: str
    split: str
    fingerprint: str
    command: str
    date: str
    revision: str
    backend: str


def of_test_images(data, n, command):
    """The fields of a `MeasuredReport` of `n` test images of the data set `data`, measured now by `command`."""
    return {
        "n": n,
        "data": data.set_name,
        "split": "test",
        "fingerprint": data.open("test").fingerprint(),
        "command": command,
        **provenance.stamp(),
    }
