"""From recipe to weights: the run, its folder, checkpoints, schedules."""
