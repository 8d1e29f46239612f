"""Deployed networks on a GPU: blocks get their kernels, single entries stay dense for a measured reason."""

import copy

import pytest
import torch
from torch import nn

from orthosparse import BlockLinear, deploy, sparsify

pytestmark = pytest.mark.gpu


def wide(structure, dtype=torch.bfloat16):
    """Three layers 4096 wide at density 0.1."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096))
    sparsify(model, 0.1, structure=structure, distribution="uniform", generator=generator)
    return model.to("cuda", dtype)


def test_a_model_of_blocks_gets_their_kernels():
    model, x = wide("block:64"), torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    before = copy.deepcopy(model.state_dict())
    deployed, table = deploy(model, x, compile=False)
    print(table)
    assert table.chosen == "deployed"
    assert [row.form for row in table.rows] == ["block:64"] * 3
    assert all(row.ratio > 1 for row in table.rows)
    assert sum(isinstance(module, BlockLinear) for module in deployed.modules()) == 3
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    with torch.inference_mode():
        torch.testing.assert_close(deployed(x), model.eval()(x), rtol=5e-2, atol=5e-2)


def test_single_entries_are_refused_with_their_times():
    model, x = wide("entries", torch.float32), torch.randn(2048, 4096, device="cuda")
    _, table = deploy(model, x, compile=False)
    print(table)
    assert [row.form for row in table.rows] == ["dense"] * 3
    for row in table.rows:
        assert row.times["entries"] > row.times["dense"]
        assert "sparse forms are slower" in row.note
