"""Exported programs."""

import io

import pytest
import torch
from torch import nn

from contracts.states import assert_same, state_of
from masking.models import coins, filled, sparse_mlp, x_of
from orthosparse import masking
from orthosparse.layers import find_layers


class LastState(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


EXPORTED = {
    "mlp": lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6)),
    "conv": lambda: nn.Sequential(nn.Conv1d(4, 6, 3, padding=1), nn.ReLU(), nn.Conv1d(6, 6, 1, groups=2)),
    "lstm": LastState,
    "attention": SelfAttention,
}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo looks there itself
# torch's recurrent layers write to themselves in every forward pass, under any parametrization.
@pytest.mark.filterwarnings("ignore:The tensor attributes self.lstm._flat_weights")
@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects happened:UserWarning")
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", EXPORTED)
@pytest.mark.stack("export", "masked")
def test_an_exported_program_computes_with_the_masks_through_a_file_too(kind, strict, generator):
    model = filled(EXPORTED[kind](), generator).eval()
    masking.attach(model, coins(model, [*find_layers(model)], generator))
    before = state_of(model)
    x, other = x_of(generator, 3, 4, 6), x_of(generator, 3, 4, 6)
    expected = model(other).detach()
    program, file = torch.export.export(model, (x,), strict=strict), io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for each in (program, torch.export.load(file)):
        output = each.module()(other)
        assert type(output) is torch.Tensor
        torch.testing.assert_close(output.detach(), expected)
    assert {name for name in program.constants if name.endswith("mask")} == {n for n, _ in model.named_buffers()}
    assert_same(before, model.state_dict())
    torch.testing.assert_close(model(other).detach(), expected)


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_program_trains_with_zeros_off_the_mask(strict, generator):
    model, masks = sparse_mlp(generator)
    x = x_of(generator, 4, 5)
    program = torch.export.export(model, (x,), strict=strict).module()
    program(x).square().sum().backward()
    model(x).square().sum().backward()
    gradients = {name: value.grad for name, value in program.named_parameters()}
    for name, value in model.named_parameters():
        torch.testing.assert_close(gradients[name], value.grad)
    assert gradients["0._checkpoint_wrapped_module.weight"][~masks["0"]].count_nonzero() == 0
