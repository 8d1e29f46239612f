"""The lab: the models, data, training and commands that reproduce the paper, on top of the library."""
