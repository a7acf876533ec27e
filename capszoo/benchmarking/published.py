"""The speed of published presets, measured one after the other in one run and written into their cards."""

from capszoo.benchmarking.machine import busy, facts
from capszoo.benchmarking.measuring import interleave, summarise
from capszoo.benchmarking.networks import OURS, Network
from capszoo.progress import QUIET, Progress
from capszoo.zoo import locating, presets
from capszoo.zoo.card import Speed
from capszoo.zoo.replacing import update_card

# Images a batch.
BATCH = 32


def record_speeds(names: list[str], seconds: float = 4.0, progress: Progress = QUIET) -> dict[str, Speed]:
    """Measures training and inference of presets and writes both into their cards.

    where:
      names: of presets with weights; all are looked at before one is measured.
      seconds: for how long each work of each preset is measured, see `interleave`.
      progress: says a line for each preset.

    A network runs as users run it here, compiled routing included, on random images, with the optimiser's work.
    Returns what was measured, by preset.
    Errors: `ValueError` for a preset without weights in the package, and on a machine that is busy with other work.
    """
    found = {preset.name: preset for preset in map(presets.get_preset, names)}
    without = [name for name, preset in found.items() if preset.card is None or preset.outside]
    if without:
        raise ValueError(f"presets with weights in the package are needed. Received: {', '.join(without)}")
    machine = facts()
    if busy(machine):
        raise ValueError(f"speed is measured on an idle machine. Its load is {machine['load_before']:.1f}.")
    processor = ", ".join([machine["processor"], f"{machine['cpus']} CPUs", *machine["accelerators"]])
    speeds = {}
    for name, preset in found.items():
        recipe = preset.recipe
        training = _images_per_second(Network(recipe, OURS, recipe.train.precision).training_step, seconds)
        inference = _images_per_second(Network(recipe, OURS, "float32").inference_step, seconds)
        speeds[name] = Speed(training, inference, BATCH, processor, machine["libraries"])
        update_card(locating.weights_folder() / name, preset.card.files, speed=speeds[name])
        progress.say(f"{name}: {speeds[name].sentence()}")
    return speeds


def _images_per_second(step, seconds):
    rounds = interleave({OURS: step(BATCH)}, seconds)
    return round(summarise(rounds, BATCH)[OURS]["images_per_second"], 1)
