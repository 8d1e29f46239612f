"""The order of the parameters, by which optimizers save what they hold."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from contracts.states import assert_same
from masking.models import coins, filled, x_of
from orthosparse import masking
from orthosparse.front_door import sparsify
from orthosparse.layers import find_layers


class Backwards(nn.Module):
    """Its declaration names the parameters in another order than the module has them."""

    __orthosparse__ = {"third": "out in", "first": "out in"}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.zeros(3))
        self.third = nn.Parameter(torch.zeros(4, 4))

    def forward(self, x):
        return (x @ self.first.T + self.second.sum()) @ self.third.T


ORDERED = {
    "lstm": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True),
    "gru": lambda: nn.GRU(3, 4),
    "declared": Backwards,
    "attention": lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=4),
}


@pytest.mark.parametrize("kind", ORDERED)
def test_the_parameters_have_one_order_whatever_order_the_masks_come_in(kind, generator):
    plain = [name for name, _ in ORDERED[kind]().named_parameters()]
    models = [filled(ORDERED[kind](), generator) for _ in range(4)]
    masks = coins(models[0], [*find_layers(models[0])], generator)
    assert len(masks) > 1
    masking.attach(models[0], masks)
    masking.attach(models[1], dict(reversed(masks.items())))
    for name in reversed(masks):
        masking.attach(models[2], {name: masks[name]})
    masking.load_sparse(models[3], models[1].state_dict())
    orders = [[name for name, _ in model.named_parameters()] for model in models]
    assert all(order == orders[0] for order in orders)
    masked = [name.split(".")[-1] for name in orders[0] if name.startswith("_checkpoint_wrapped_module.")]
    assert masked == [name for name in plain if name in masked]
    assert [*masking.masks_of(models[0])] == [*masking.masks_of(models[3])]
    assert kind == "declared" or [*find_layers(models[0])] == [*masks] == [*masking.masks_of(models[0])]


@pytest.mark.parametrize("kind", ORDERED)
def test_bake_gives_back_the_order_of_modules_with_several_masks(kind, generator):
    model = filled(ORDERED[kind](), generator)
    before = [*model.named_parameters()]
    masks = coins(model, [*find_layers(model)], generator)
    masking.attach(model, dict(reversed(masks.items())))
    masking.bake(copy.deepcopy(model))
    masking.bake(model)
    after = [*model.named_parameters()]
    assert [name for name, _ in after] == [name for name, _ in before]
    assert all(a is b for (_, a), (_, b) in zip(after, before, strict=True))


def momenta_of(model, optimizer):
    return {name: optimizer.state[parameter]["momentum_buffer"] for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("kind", ["lstm", "declared"])
def test_an_optimizer_resumed_with_a_loaded_model_holds_each_momentum_at_its_parameter(kind, generator):
    def trained(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        output = model(x_of(torch.Generator().manual_seed(3), 5, 3))
        (output[0] if isinstance(output, tuple) else output).square().sum().backward()
        optimizer.step()
        return optimizer

    model, again = filled(ORDERED[kind](), generator), ORDERED[kind]()
    sparsify(model, 0.6, generator=generator)
    optimizer = trained(model)
    masking.load_sparse(again, model.state_dict())
    resumed = torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9)
    resumed.load_state_dict(optimizer.state_dict())
    assert_same(momenta_of(model, optimizer), momenta_of(again, resumed))


def test_states_by_name_fit_whether_the_optimizer_or_the_masks_came_first(generator):
    model, again = (filled(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), generator) for _ in range(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(x_of(generator, 5, 4)).square().sum().backward()
    optimizer.step()
    masking.attach(model, coins(model, ["0", "1"], generator), optimizer=optimizer)
    saved = get_optimizer_state_dict(model, optimizer)
    masking.load_sparse(again, model.state_dict())
    resumed = torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9)
    set_optimizer_state_dict(again, resumed, saved)
    assert_same(momenta_of(model, optimizer), momenta_of(again, resumed))
