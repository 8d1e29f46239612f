import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from orthosparse.distributions._inputs import batches_of, outputs_on

MODEL = nn.Linear(3, 2)
X, Y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)


@pytest.mark.parametrize(
    ("batch", "number"),
    [
        ((X, Y), 1),
        ([X, Y], 1),
        (({"input": X}, Y), 1),
        ((X, None), 1),
        ([(X, Y)], 1),
        ([(X, Y), (X, Y)], 2),
        (((X, Y), (X, Y)), 2),
        ([((X, X), Y)], 1),
        (((X, X), Y), 1),
        ([[X, X], None], 1),
        (((X, X), {"labels": Y}), 1),
        (iter([(X, Y)] * 3), 3),
        (DataLoader(TensorDataset(X, Y), batch_size=2), 2),
    ],
)
def test_a_pair_of_inputs_and_targets_is_one_batch_and_other_iterables_are_many(batch, number):
    pairs = list(batches_of(batch, MODEL, "snip"))
    assert len(pairs) == number
    assert all(len(pair) == 2 for pair in pairs)


@pytest.mark.parametrize("batch", [X, {"x": X, "y": Y}, 7, "xy", [X, Y, X], [X], [(X, Y, Y)]])
def test_what_is_no_batch_is_refused(batch):
    with pytest.raises(TypeError, match="batch: expected \\(inputs, targets\\), or an iterable of such pairs"):
        list(batches_of(batch, MODEL, "snip"))


def test_no_batches_are_refused():
    with pytest.raises(ValueError, match=r"batch: expected .* got none"):
        list(batches_of([], MODEL, "snip"))


def test_targets_on_another_device_are_named():
    with pytest.raises(ValueError, match="got one on meta"):
        list(batches_of((X, Y.to("meta")), MODEL, "snip"))


def test_running_out_of_memory_is_no_fault_of_the_batch():
    class Hungry(nn.Module):
        def forward(self, x):
            raise torch.OutOfMemoryError("full")

    with pytest.raises(torch.OutOfMemoryError):
        outputs_on(Hungry(), X)
