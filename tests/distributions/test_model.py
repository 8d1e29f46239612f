import pytest
import torch
from torch import nn

from contracts.models import MODELS
from contracts.traces import differences, prepared, trace_of
from orthosparse.distributions._model import preserve, seed_generators, with_tensors


class Messy(nn.Module):
    """Changes all that a forward pass can change on its module."""

    def __init__(self):
        super().__init__()
        self.linear, self.lstm = nn.Linear(3, 3), nn.LSTM(3, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        self.last = x
        self.register_buffer("cache", x.detach())
        self.train(not self.training)
        return self.lstm(self.linear(x))[0] + torch.rand(())


@pytest.mark.parametrize("fails", [False, True])
def test_all_that_a_forward_pass_changes_is_put_back(fails):
    model = prepared(Messy())
    before = trace_of(model)

    def run(model):
        model.eval()
        model(torch.ones(2, 3)).sum()
        if fails:
            raise KeyboardInterrupt

    try:
        with preserve(model):
            seed_generators(model, 7)
            own = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
            own |= {name: tensor.clone() for name, tensor in model.named_buffers()}
            with with_tensors(model, own):
                run(model)
    except KeyboardInterrupt:
        assert fails
    assert differences(before, trace_of(model)) == []


def test_the_trace_sees_what_is_not_put_back():
    """The same without `preserve`: a law that could not fail would prove nothing."""
    model = prepared(Messy())
    before = trace_of(model)
    with torch.random.fork_rng(devices=[]):
        model(torch.ones(2, 3))
        changed = differences(before, trace_of(model))
    expected = {"seen: value", "cache: value", ": attributes", ": mode", "torch"}
    assert expected <= set(changed)


def test_compiled_calls_are_stepped_over_and_put_back():
    model = MODELS["mlp"].make()
    model._compiled_call_impl = compiled = lambda *_: pytest.fail("called")
    with preserve(model):
        assert model(MODELS["mlp"].batch()[0]).shape == (8, 5)
    assert model._compiled_call_impl is compiled


def test_dropout_draws_what_the_seed_says():
    drop = nn.Dropout(0.5)
    draws = []
    for seed in (1, 1, 2):
        with preserve(drop):
            seed_generators(drop, seed)
            draws.append(drop(torch.ones(50)))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_tied_tensor_is_substituted_in_every_module():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    x = torch.eye(3)
    with with_tensors(model, {"0.weight": 2 * x}):
        assert torch.equal(model(x), 4 * x)


@pytest.mark.parametrize("enabled", [True, False])
def test_cudnn_is_off_for_recurrent_models_alone_and_is_as_before_afterwards(enabled):
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = enabled
    try:
        for model, expected in ((nn.GRU(2, 2), False), (nn.Linear(2, 2), enabled)):
            with with_tensors(model, {}):
                assert torch.backends.cudnn.enabled == expected
        with pytest.raises(ZeroDivisionError), with_tensors(nn.GRU(2, 2), {}):
            raise ZeroDivisionError
        assert torch.backends.cudnn.enabled == enabled
    finally:
        torch.backends.cudnn.enabled = before
