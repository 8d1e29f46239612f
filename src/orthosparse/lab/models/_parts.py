"""What the networks here have in common: activations by name, and checks of the sizes they are built for."""

from collections.abc import Callable
from typing import SupportsIndex

import torch
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


def at_least(name: str, value: int, least: int) -> None:
    """Raise an error that names the argument when `value` is no integer (TypeError) or below `least` (ValueError)."""
    if not isinstance(value, SupportsIndex):
        raise TypeError(f"{name}: expected a whole number; got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}; got {value}")


def check_sides(name: str, in_shape: tuple[int, int, int], last: tuple[int, int]) -> None:
    """Raise a ValueError when the last feature map of network `name` would be empty."""
    if min(last) < 1:
        raise ValueError(f"in_shape: expected larger images for {name}; got {in_shape}, of which nothing is left")


def check_fits(model: nn.Module, in_shape: tuple[int, int, int], classes: int) -> None:
    """Raise a ValueError unless `model` takes images of `in_shape` and gives `classes` logits.

    Only shapes are computed (on the meta device), so it costs neither arithmetic nor a copy of the model.

    Example:
        >>> check_fits(nn.Sequential(nn.Flatten(), nn.Linear(4, 10)), (1, 2, 2), 100)
        Traceback (most recent call last):
        ...
        ValueError: classes: expected as many as the model gives, 10; got 100
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    shadows = {name: tensor.detach().to("meta") for name, tensor in tensors.items()}
    # Two images: batch normalisation refuses a single one while training.
    images = torch.empty(2, *in_shape, device="meta")
    try:
        logits = torch.func.functional_call(model, shadows, (images,))
    except (RuntimeError, ValueError, AssertionError) as error:
        raise ValueError(f"in_shape: expected images that the model takes; got {tuple(in_shape)}: {error}") from error
    if tuple(logits.shape) != (2, classes):
        raise ValueError(f"classes: expected as many as the model gives, {logits.shape[-1]}; got {classes}")
