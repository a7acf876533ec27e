"""How large a network may be, looked at before anything of it is built.

A recipe is data, and may come from anybody: a number too many must not fill the machine's memory, or keep it busy for
hours, before it is found to make no sense.
"""

import concurrent.futures
import dataclasses
import math
import random

import keras

from capszoo.config import ConfigError
from capszoo.models.architecture import RoutesIteratively

# The largest published network has 17 million.
MAX_PARAMETERS = 10**9
# Of one number of an architecture, such as its channels; of one that says how often something is repeated; and of
# how many numbers stand in a list of them.
MAX_WIDTH, MAX_REPEATS, MAX_LIST = 2**16, 100, 32
# Pixels along one side of an image.
MAX_SIDE = 2**11
# Architectures with the numbers they have by default are small. With the product of what its numbers are above them a
# network cannot grow faster than by its square, so that it need not be counted up to here:
# twice the channels, in colour, or pairs of images of 64 x 64.
UNCOUNTED_GROWTH = 8


def check_size(architecture, image_shape, num_classes, labels_per_image=1):
    """Whether a network can be built at all; `build` gets the same arguments.

    Errors: `ConfigError`, naming the key, for a number that is not the default and below one (or 0, where that, less or
    nothing is the default) or above its limit, for images with a side above `MAX_SIDE`, and for a network of more than
    `MAX_PARAMETERS` numbers.
    """
    for field in dataclasses.fields(architecture):
        numbers = _whole(getattr(architecture, field.name))
        if len(numbers) > MAX_LIST:
            raise ConfigError(f"model.{field.name}: has at most {MAX_LIST} values. Received: {len(numbers)}")
        # What says -1 by default, or nothing, is no width.
        least = 0 if field.default is None or (isinstance(field.default, int) and field.default < 1) else 1
        most = MAX_REPEATS if field.name in architecture.repeated else MAX_WIDTH
        for number in numbers:
            if number != field.default and not least <= number <= most:
                raise ConfigError(f"model.{field.name}: must be in [{least}, {most:,}]. Received: {number}")
    if max(image_shape) > MAX_SIDE:
        raise ConfigError(f"data: images have at most {MAX_SIDE:,} pixels a side. Received: {image_shape}")
    if _growth(architecture, image_shape, num_classes) > UNCOUNTED_GROWTH:
        count = _count(architecture, image_shape, num_classes, labels_per_image)
        if count > MAX_PARAMETERS:
            numbers = [
                (number, f"model.{field.name}")
                for field in dataclasses.fields(architecture)
                for number in _whole(getattr(architecture, field.name))
            ]
            largest = sorted([*numbers, (num_classes, "num_classes")], reverse=True)[:3]
            raise ConfigError(
                f"model: the network would have {count:,} parameters, more than {MAX_PARAMETERS:,}. Lower some of "
                + ", ".join(f"{name} ({number:,})" for number, name in largest)
            )


def _whole(value):
    """The whole numbers that a field's value is or has in its lists."""
    return [
        each for each in keras.tree.flatten(value) if isinstance(each, int) and not isinstance(each, bool)
    ]


def _growth(architecture, image_shape, num_classes):
    """The product of everything that is larger than by default, or than 32 x 32 pixels and 10 classes, over that."""
    growth = max(1, math.prod(image_shape) / 32**2) * max(1, num_classes / 10)
    for field in dataclasses.fields(architecture):
        # The larger a stride, the smaller what comes after it.
        if field.name.endswith("strides"):
            continue
        usual = 1 if field.default is dataclasses.MISSING else math.prod(_whole(field.default))
        growth *= max(1, math.prod(_whole(getattr(architecture, field.name))) / max(1, usual))
    return growth


def _count(*arguments):
    """How many numbers the network has, without memory for any of them.

    Keras keeps a list of variables that still wait for their values, one for each thread, and fills all of them at
    the next occasion: a thread of its own takes them along. Seeds are drawn for the initial values, which belong to
    the network that is built afterwards.
    """
    state = random.getstate()
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(_built_without_values, *arguments).result()
    finally:
        random.setstate(state)


def _built_without_values(architecture, *arguments):
    # Iterations have no weights, and take most of the time.
    if architecture.has(RoutesIteratively):
        architecture = dataclasses.replace(architecture, num_iterations=1)
    with keras.StatelessScope(initialize_variables=False):
        return sum(math.prod(weight.shape) for weight in architecture.build(*arguments).weights)
