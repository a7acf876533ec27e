"""synthnorb: smallNORB's toys, views and splits, rendered by ray casting where smallNORB itself is not at hand.

As in smallNORB there are 5 categories (four-legged animals, human figures, airplanes, trucks, cars) of 10 toys each,
seen from 9 elevations (30 to 70 degrees) and 18 azimuths (0 to 340 degrees; zero differs from toy to toy) under 6
lightings by two cameras. Toys 4, 6, 7, 8, 9 of each category train and toys 0, 1, 2, 3, 5 test: 24,300 pairs of 96 x 96
grey images each. Features and codes are those of `smallnorb` in TensorFlow Datasets.

How hard seed 0 is, trained on all 24,300 training pairs, as errors on all 24,300 pairs of the unseen test toys:
logistic regression on standardised pixels 31.0 % (48 x 48) and 31.4 % (32 x 32); a CNN of three convolutions, 188,901
parameters, with the preprocessing of `capszoo.data.Synthnorb`, 8.1 % after 6 epochs (one run; most errors are cars
taken for trucks, and half of those are one car).

    python -m capszoo.data.synthnorb            # once, some minutes on two cores
    tfds.load("synthnorb", split="train")
"""

from pathlib import Path

from capszoo.extras import extra


def generate(data_dir: str | Path | None = None, seed: int = 0, processes: int = 2) -> Path:
    """Render the whole set into `data_dir`/synthnorb and return the folder; a set that is already there is kept.

    A run that was interrupted leaves nothing that could be mistaken for a data set.

    Args:
        data_dir: None stands for TFDS's own folder (`TFDS_DATA_DIR` or ~/tensorflow_datasets).
        seed: decides the toys; at least 0.
        processes: how many render at the same time; the images do not depend on it.

    Raises:
        ValueError: if the folder holds a set made from another seed.
    """
    with extra("synthnorb"):
        import tensorflow_datasets as tfds

        from capszoo.data.synthnorb.builder import Synthnorb

    builder = Synthnorb(seed=seed, processes=processes, data_dir=data_dir)
    if builder.is_prepared():
        found = builder.info.metadata["seed"]
        if found != seed:
            raise ValueError(
                f"Expected synthnorb of seed {seed} in {builder.data_path}. Received: seed {found}."
            )
        return Path(builder.data_path)
    tfds.disable_progress_bar()  # the builder has its own
    try:
        builder.download_and_prepare()
    finally:
        tfds.enable_progress_bar()
    return Path(builder.data_path)
