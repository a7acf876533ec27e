"""Fine-tuning: which layers of a network learn, and how fast."""

import keras


def freeze_below(model, stage):
    """The layers of `model` below the layer `stage` learn nothing more; statistics of normalisation stay as they are.

    Returns their names. Errors: `ValueError` naming the stages of the network for another name.
    """
    stages = model.architecture.stages
    if stage not in stages:
        raise ValueError(f"freeze must be one of the stages {', '.join(stages)}. Received: {stage!r}")
    inputs = model.get_layer(stage).input
    below = keras.Model(model.input, inputs).layers
    for layer in below:
        layer.trainable = False
    return [layer.name for layer in below]


def scale_rates(model, factors):
    """The optimiser of `model` changes variables at its learning rate times a factor.

    where:
      factors: by paths of weights; all others have 1.

    Gradients are not scaled, which Adam would not notice, nor is weight decay.
    """
    optimizer = updating(model.optimizer)
    # Of the class: an optimiser that is compiled again is not slowed down twice.
    update = type(optimizer).update_step.__get__(optimizer)
    # TensorFlow's optimisers are handed what lies inside Keras' variables, of several devices the part of each.
    paths = {
        id(part): weight.path
        for weight in model.trainable_weights
        for part in (weight.value, *getattr(weight.value, "values", ()))
    }

    def update_step(gradient, variable, learning_rate):
        path = variable.path if isinstance(variable, keras.Variable) else paths[id(variable)]
        return update(gradient, variable, learning_rate * factors.get(path, 1.0))

    if factors:
        optimizer.update_step = update_step


def steps_of(optimizer):
    """The variable that counts the steps of an optimiser, those included in which it only gathers gradients."""
    return updating(optimizer).variables[0]


def updating(optimizer):
    """The optimiser that counts steps and changes variables: what Keras wraps where it scales the loss."""
    return getattr(optimizer, "inner_optimizer", optimizer)
