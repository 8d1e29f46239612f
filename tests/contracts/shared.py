"""Tiny models that use one module, or one tensor, in several places, and their equals made of separate copies.

All are flat sequences, so that `apart` needs only copy what stands in each place.
"""

import copy

import torch
from torch import Tensor, nn

from contracts.models import CLASSES, Tiny


class States(nn.Module):
    """An LSTM's outputs without its states."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


def module() -> nn.Module:
    block = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU())
    return nn.Sequential(nn.Linear(4, 6), block, block, nn.Linear(6, CLASSES))


def convolution() -> nn.Module:
    conv = nn.Conv2d(3, 3, 3, padding=1)
    return nn.Sequential(conv, nn.ReLU(), conv, nn.Flatten(), nn.Linear(48, CLASSES))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, CLASSES))
    model[3].weight = model[1].weight
    return model


def recurrent() -> nn.Module:
    states = States()
    return nn.Sequential(states, states, nn.Flatten(), nn.Linear(18, CLASSES))


SHARED = {
    "module": Tiny(module, (4,), homogeneous=True),
    "convolution": Tiny(convolution, (3, 4, 4), homogeneous=True),
    "tied": Tiny(tied, (4,), homogeneous=True),
    "recurrent": Tiny(recurrent, (3, 6), homogeneous=False),
}


def apart(model: nn.Module) -> nn.Sequential:
    """Return the equal model in which every place has a copy of its own."""
    assert isinstance(model, nn.Sequential)
    return nn.Sequential(*[copy.deepcopy(model._modules[name]) for name in model._modules])


def parts_of(model: nn.Module) -> dict[str, list[str]]:
    """Return, for each parameter of `model` by its first name, the names of its copies in ``apart(model)``."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {places[0]: places for places in names.values()}


def summed(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what tensors of ``apart(model)``, by parameter name, add up to in `model`."""
    return {name: torch.stack([tensors[place] for place in places]).sum(0) for name, places in parts_of(model).items()}
