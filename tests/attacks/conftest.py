"""What all attacks share: limits, a count of what was tried, and the table at the end.

An attack has failed where something wrong was accepted, where the answer was no error of the zoo but a traceback of
somebody else's, where it took longer than `SECONDS` or more than `BYTES`, or where something half-written was left.
"""

import collections
import resource
import signal

import numpy as np
import pytest

SECONDS = 60
# Of the address space, beyond what the process has when the attack begins.
BYTES = 4 * 2**30

Tried = collections.namedtuple("Tried", "subject tried failed")
_TABLE = pytest.StashKey[dict]()


def pytest_configure(config):
    config.stash[_TABLE] = {}


def pytest_terminal_summary(terminalreporter, config):
    table = config.stash[_TABLE]
    if table:
        terminalreporter.section("attacks")
        terminalreporter.line(f"{'subject':24}{'tried':>8}{'failed':>8}")
        for subject, (tried, failed) in sorted(table.items()):
            terminalreporter.line(f"{subject:24}{tried:>8}{len(failed):>8}")


class TimeOver(BaseException):
    """An attack has hung; no handler of errors catches it."""


class Attacks:
    """`attacks(act, *errors)` counts one attack: `act()` must raise one of `errors`, a single line or a list.

    where:
      subject: of the table.
      rng: numbers that depend on the subject alone.
    """

    def __init__(self, subject, tried):
        self.subject, self.rng = subject, np.random.default_rng(list(subject.encode()))
        self.tried, self.failures = tried, []

    def __call__(self, what, act, *errors, harmless=None):
        """Tries `act()`; `harmless(result)` says whether what was accepted does no harm: a flipped bit may do none."""
        self.tried[0] += 1
        try:
            with _bounded():
                result = act()
        except errors:
            return
        except (Exception, TimeOver) as error:
            self._fail(f"{what}: {type(error).__name__}: {str(error)[:200]}")
        else:
            if harmless is None or not harmless(result):
                self._fail(f"{what}: accepted")

    def _fail(self, failure):
        self.failures.append(failure)
        self.tried[1].append(failure)


class _bounded:
    """Inside, time and memory end."""

    def __enter__(self):
        self.limits = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm", encoding="ascii") as file:
            present = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (present + BYTES, self.limits[1]))
        self.handler = signal.signal(signal.SIGALRM, self._over)
        signal.alarm(SECONDS)

    def __exit__(self, *_):
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self.handler)
        resource.setrlimit(resource.RLIMIT_AS, self.limits)

    @staticmethod
    def _over(*_):
        raise TimeOver(f"took longer than {SECONDS} seconds")


@pytest.fixture
def attacks(request):
    """Counts the attacks of a test; all are tried before the first failure is told."""
    subject = request.module.__name__.rpartition("test_attacked_")[2].replace("_", " ")
    tried = request.config.stash[_TABLE].setdefault(subject, [0, []])
    counted = Attacks(subject, tried)
    yield counted
    assert not counted.failures, "\n".join(counted.failures)
