"""The activations of the paper's networks, by name."""

from collections.abc import Callable

from torch import nn

from orthosparse.registry import lookup

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "hardtanh": nn.Hardtanh,
    "leaky_relu": nn.LeakyReLU,
    "linear": nn.Identity,
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "tanh": nn.Tanh,
}


def activation_named(name: str) -> nn.Module:
    """Return a new activation module; ``linear`` is none at all.

    Example:
        >>> activation_named("leaky_relu")
        LeakyReLU(negative_slope=0.01)
    """
    return lookup(ACTIVATIONS, name, "activation")()
