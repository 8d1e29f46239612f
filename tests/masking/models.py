"""Small models with weights of their own, and masks for them."""

import torch
from torch import nn

from orthosparse import masking


def filled(model, generator):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    return model


def coins(model, names, generator):
    """A random mask for each (module, tensor) that a layer name stands for."""
    modules, masks = dict(model.named_modules()), {}
    for name in names:
        tensor = modules[name].weight if name in modules else model.get_parameter(name)
        masks[name] = torch.rand(tensor.shape, generator=generator) < 0.4
    return masks


def mlp(generator):
    return filled(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Sequential(nn.Linear(7, 6)), nn.Linear(6, 3)), generator)


def sparse_mlp(generator):
    model = mlp(generator)
    masks = coins(model, ["0", "2.0"], generator)
    masking.attach(model, masks)
    return model, masks


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)))


# Outputs are compared with assert_close: a kernel may follow the alignment of the memory, so that the same numbers at
# another place differ in the last bit. Weights are compared bit for bit.
def x_of(generator, *shape):
    return torch.randn(*shape, generator=generator)
