import sys
from contextlib import contextmanager
from itertools import count

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.utils._python_dispatch import TorchDispatchMode

import orthosparse
from contracts.states import assert_same, state_of
from orthosparse import masking
from orthosparse.masking import transactions
from orthosparse.masking.transactions import Drafts, can_draft, undone_on_error

from .models import coins, filled


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        self.two.weight = self.one.weight
        self.rnn, self.conv, self.last = nn.LSTM(6, 6), nn.Conv1d(1, 3, 3), nn.Linear(4, 3)

    def forward(self, x):
        x, _ = self.rnn(self.two(self.one(x).tanh()))
        return self.last(self.conv(x[:, None]))


class Interrupting(TorchDispatchMode):
    """Raises KeyboardInterrupt in place of one tensor operation, after as many others as given."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.after -= 1
        if self.after == -1:
            raise KeyboardInterrupt
        return operation(*args, **(kwargs or {}))


NAMES = ("one", "rnn.weight_hh_l0", "conv", "last")


def trained(seed, *, sparse, compact=False, pruned=False):
    model = filled(Net(), torch.Generator().manual_seed(seed))
    if pruned:
        for name in ("one", "two", "conv", "last"):
            prune.l1_unstructured(model.get_submodule(name), "weight", amount=0.5)
    if sparse:
        masking.attach(model, masks_for(model, seed))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 6)).square().sum().backward()
        optimizer.step()
    if compact:
        orthosparse.compact(model, optimizer=optimizer)
    return model, optimizer


def masks_for(model, seed):
    return coins(model, NAMES, torch.Generator().manual_seed(seed))


def moved(model):
    return {name: mask.flatten().roll(1).view(mask.shape) for name, mask in masking.masks_of(model).items()}


CHANGES = {
    "attach": (lambda m, o: masking.attach(m, masks_for(m, 1), optimizer=o), {"sparse": False}),
    "attach filled": (lambda m, o: masking.attach(m, masks_for(m, 1), filled=True), {"sparse": False}),
    "replace": (lambda m, o: masking.replace_masks(m, moved(m), optimizer=o), {"sparse": True}),
    "move": (lambda m, o: masking.replace_masks(m, moved(m), optimizer=o), {"sparse": True, "compact": True}),
    "bake": (lambda m, o: masking.bake(m), {"sparse": True}),
    "bake compact": (lambda m, o: masking.bake(m, optimizer=o), {"sparse": True, "compact": True}),
    "compact": (lambda m, o: orthosparse.compact(m, optimizer=o), {"sparse": True}),
    "import": (lambda m, o: masking.import_prune_masks(m), {"sparse": False, "pruned": True}),
    "expand": (lambda m, o: orthosparse.expand(m, optimizer=o), {"sparse": True, "compact": True}),
}


def parts_of(model, optimizer):
    """What must be the same object, or equal, and the values of all tensors."""
    objects = [[*model.modules()], [*model.parameters()], optimizer.param_groups[0]["params"], [*optimizer.state]]
    equal = [[type(module) for module in model.modules()], *([*vars(module)] for module in model.modules())]
    equal += [[*module._parameters, *module._buffers, *module._modules] for module in model.modules()]
    equal += [
        [len(held) for name, held in vars(module).items() if "hooks" in name and isinstance(held, dict)]
        for module in model.modules()
    ]
    tensors = [*model.parameters(), *model.buffers(), *(each.grad for each in model.parameters())]
    tensors += [value for state in optimizer.state.values() for value in state.values()]
    return [[id(each) for each in some] for some in objects], equal, [each.detach().clone() for each in tensors]


@pytest.mark.parametrize("name", CHANGES)
def test_an_interrupt_in_any_operation_leaves_model_and_optimizer_as_they_were(name):
    change, start = CHANGES[name]
    (model, optimizer), number = trained(0, **start), 0
    *before, tensors = parts_of(model, optimizer)
    while True:
        try:
            with Interrupting(number):
                change(model, optimizer)
        except KeyboardInterrupt:
            *after, values = parts_of(model, optimizer)
            assert after == before, number
            assert all(map(torch.equal, values, tensors)), number
            number += 1
        else:
            break
    assert number > 10
    assert parts_of(model, optimizer)[:2] != before or name in ("replace", "move")
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()


def test_a_gradient_that_cannot_be_masked_leaves_the_layers_before_it_as_they_were():
    model = nn.Sequential(nn.Linear(4, 6, bias=False), nn.Linear(3, 6, bias=False))
    model[1].weight.grad = torch.eye(6, 3).to_sparse()
    before = state_of(model)
    with pytest.raises(NotImplementedError):
        masking.attach(model, {"0": torch.eye(6, 4).bool(), "1": torch.eye(6, 3).bool()})
    assert not masking.is_sparsified(model)
    assert_same(before, model.state_dict())


def test_what_a_block_registers_is_gone_and_what_it_removes_is_back():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first, parameters = model[0], [*model.parameters()]
    with pytest.raises(KeyboardInterrupt), undone_on_error(model, optimizer) as saved:
        saved.save(first.weight)
        first.weight.data.zero_()
        first.register_forward_hook(print)
        first.register_buffer("other", torch.ones(1))
        model[1] = nn.Tanh()
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
        optimizer.param_groups[0]["params"].clear()
        raise KeyboardInterrupt
    assert bool(first.weight.any())
    assert not first._forward_hooks
    assert [name for name, _ in model.named_buffers()] == []
    assert isinstance(model[1], nn.ReLU)
    assert len(optimizer.param_groups) == 1
    assert all(map(lambda a, b: a is b, optimizer.param_groups[0]["params"], parameters))


@contextmanager
def interrupted_undo(number):
    """Raise KeyboardInterrupt in place of one of the lines of `undo`, counted as they run."""
    before, lines = sys.gettrace(), count()

    def trace(frame, event, _):
        if frame.f_code.co_name != "undo":
            return None
        if event == "line" and next(lines) == number:
            raise KeyboardInterrupt  # which also ends the tracing
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def test_an_interrupt_at_any_line_of_the_undo_waits_until_all_is_undone():
    model, optimizer = trained(0, sparse=False)
    *before, values = parts_of(model, optimizer)
    for number in count():
        with (
            pytest.raises((ZeroDivisionError, KeyboardInterrupt)) as caught,
            interrupted_undo(number),
            undone_on_error(model, optimizer) as saved,
        ):
            saved.save(model.one.weight)
            model.one.weight.data.zero_()
            model.rnn.register_forward_hook(print)
            model.conv = nn.Tanh()
            optimizer.param_groups[0]["params"].clear()
            _ = 1 / 0
        *after, restored = parts_of(model, optimizer)
        assert after == before, number
        assert all(map(torch.equal, restored, values)), number
        if caught.type is ZeroDivisionError:
            break
    assert number > 10


def test_a_single_number_is_restored_too():
    model = nn.Module()
    model.scale, model.weight = nn.Parameter(torch.tensor(3.0)), nn.Parameter(torch.ones(2, 2))
    model.weight.grad = torch.ones(2, 2).to_sparse()
    with pytest.raises(NotImplementedError):
        masking.attach(model, {"scale": torch.tensor(False), "weight": torch.eye(2).bool()})
    assert model.scale == 3


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
MASK = torch.arange(12).view(3, 4) % 3 == 0


def parameter(dtype=torch.float32, transposed=False, start=1):
    values = torch.arange(start, start + 12, dtype=torch.float32).to(dtype)
    return nn.Parameter(values.view(4, 3).T if transposed else values.view(3, 4))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_draft_is_written_at_the_end_where_the_old_values_were(dtype, transposed):
    weight, made = parameter(dtype, transposed), Drafts()
    before, address, stride = weight.detach().clone(), weight.data_ptr(), weight.stride()
    with made.beside(weight) as keep:
        assert torch.equal(weight, before)
        assert weight.stride() == stride
        weight.data.mul_(-1).masked_fill_(~MASK, 0)
        keep(MASK)
        assert weight.data_ptr() != address
    assert torch.equal(weight, before)
    assert weight.data_ptr() == address
    made.write()
    assert weight.data_ptr() == address
    assert torch.equal(weight, -before * MASK)


def test_drafts_of_several_weights_do_not_share_memory():
    weights, made = [parameter(start=start) for start in (1, 100, 200)], Drafts()
    before = [weight.detach().clone() for weight in weights]
    for weight in weights:
        with made.beside(weight) as keep:
            weight.data.mul_(2)
            keep(MASK)
    made.write()
    assert all(torch.equal(weight, 2 * old * MASK) for weight, old in zip(weights, before, strict=True))


def test_a_block_that_raises_leaves_the_parameter():
    weight, made = parameter(), Drafts()
    before, address = weight.detach().clone(), weight.data_ptr()
    with pytest.raises(ZeroDivisionError), made.beside(weight):
        weight.data.zero_()
        _ = 1 / 0
    made.write()
    assert torch.equal(weight, before)
    assert weight.data_ptr() == address


def test_an_interrupt_waits_until_all_is_written(monkeypatch):
    weights, made = [parameter(start=start) for start in (1, 100, 200)], Drafts()
    for weight in weights:
        with made.beside(weight) as keep:
            weight.data.fill_(7)
            keep(MASK)
    calls, bits = [], transactions._bits

    def interrupted(tensor):
        calls.append(tensor)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return bits(tensor)

    monkeypatch.setattr(transactions, "_bits", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.write()
    assert all(torch.equal(weight, 7.0 * MASK) for weight in weights)


def test_only_plain_tensors_in_the_memory_of_the_cpu_are_drafted():
    class Own(torch.Tensor):
        pass

    assert can_draft(parameter())
    assert not can_draft(nn.Parameter(torch.empty(2, 2, device="meta")))
    assert not can_draft(nn.Parameter(torch.zeros(2, 2).as_subclass(Own)))
