"""Small models with masks, of entries and of blocks, for tests."""

import torch
from torch import nn

from orthosparse.masking import attach


class Net(nn.Module):
    """A convolution of three taps, one of one tap and linear layers, with a norm and dropout between them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.mix = nn.Conv2d(32, 32, 1, stride=2)
        self.norm = nn.BatchNorm2d(32)
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(32, 64)
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        x = self.norm(self.mix(self.stem(x).relu())).relu().mean((2, 3))
        return self.head(self.drop(self.fc(x).tanh()))


def masks_for(model, generator, *, block=None, density=0.3):
    """Draw masks of entries, or of blocks where they divide a layer, for all weights with two sides or more."""
    masks = {}
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            rows, columns = parameter.shape[0], parameter[0].numel()
            unit = block if block and rows % block == 0 and columns % block == 0 else 1
            grid = torch.rand(rows // unit, columns // unit, generator=generator) < density
            grid.view(-1)[0] = True
            mask = grid.repeat_interleave(unit, 0).repeat_interleave(unit, 1)
            masks[name.removesuffix(".weight")] = mask.view(parameter.shape)
    return masks


def masked_net(generator, *, block=None, dtype=torch.float64, model=None):
    """Return a model with masks and reproducible weights."""
    model = (Net() if model is None else model).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    attach(model, masks_for(model, generator, block=block))
    return model


def batch_for(model, generator):
    """Return inputs and labels for `Net`."""
    dtype = next(model.parameters()).dtype
    return torch.randn(6, 3, 8, 8, generator=generator, dtype=dtype), torch.randint(5, (6,), generator=generator)
