"""Progress of a search in the terminal."""

from capszoo.search.leaderboard import to_table
from capszoo.training.progress import TrainingProgress


class SearchProgress(TrainingProgress):
    """Reporter of `capszoo.search.tuner.tune`: a bar for the trial under way, and the leaderboard after each trial."""

    def begin(self, recipe, step, total):
        for task in self.bar.task_ids:
            self.bar.remove_task(task)
        super().begin(recipe, step, total)

    def leaderboard(self, rows):
        """Prints the trials so far, best first."""
        self.console.print(to_table(rows))
