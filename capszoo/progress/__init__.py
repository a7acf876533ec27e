"""How long work says how far it is: one contract for training, searches, protocols, benchmarks and publishing.

Whatever takes long has an argument `progress`, a `Progress`, and tells it three things:

    progress.begin("test_error", total=10_000)     # a task, in the place of the one before
    progress.advance(250)                          # so many more of its parts are done
    progress.say("test error 0.25 %")              # a line that stays
"""


class Progress:
    """Shows nothing of what is reported to it; what shows it (`capszoo.progress.terminal`) is a subclass."""

    def begin(self, title: str, total: int, done: int = 0):
        """A task of `total` parts begins, of which `done` were done before; it takes the place of the last one."""

    def advance(self, count: int = 1, numbers: dict[str, float] | None = None):
        """`count` more parts are done; `numbers` say how it goes, such as the loss of a step."""

    def say(self, text):
        """A line, or a table of `rich`, that stays."""


QUIET = Progress()
