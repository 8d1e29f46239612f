import pytest
import torch
from torch import nn

from orthosparse.masking import transactions
from orthosparse.masking.transactions import Drafts, can_draft

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
