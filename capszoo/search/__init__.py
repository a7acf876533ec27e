"""Search for the values of a recipe: the space, the tuner, what it leaves behind."""
