"""On a GPU: blocks run by their kernels, single entries are refused with the times that were measured."""

import pytest
import torch
from torch import nn

from orthosparse import BlockLinear, deploy, sparsify

pytestmark = pytest.mark.gpu


def wide(structure, generator):
    model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096)).bfloat16()
    sparsify(model, 0.1, structure=structure, scheme="base", distribution="uniform", generator=generator)
    return model.cuda(), torch.randn(16_384, 4096, generator=generator).cuda().bfloat16()


def test_a_block_model_deploys_to_its_kernels(generator):
    model, x = wide("block:64", generator)
    deployed, table = deploy(model, x)
    print(table)
    assert [row.form for row in table.rows] == ["block:64", "block:64"]
    assert all(row.ratio > 1 for row in table.rows)
    assert table.chosen.startswith("deployed")
    assert sum(isinstance(module, BlockLinear) for module in deployed.modules()) == 2
    torch.testing.assert_close(deployed(x).float(), model.eval()(x).float(), rtol=5e-2, atol=5e-2)


def test_single_entries_are_refused_with_the_measured_reason(generator):
    model, x = wide("entries", generator)
    deployed, table = deploy(model, x, compile=False)
    print(table)
    assert {row.form for row in table.rows} == {"dense"}
    for row in table.rows:
        assert row.times["entries"] > row.times["dense"]
        assert "entries takes" in row.note
    torch.testing.assert_close(deployed(x).float(), model.eval()(x).float(), rtol=5e-2, atol=5e-2)


def test_two_of_four_is_timed(generator):
    model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096)).half()
    sparsify(model, 0.5, structure="2:4", generator=generator)
    x = torch.randn(4096, 4096, generator=generator).cuda().half()
    _, table = deploy(model.cuda(), x, compile=False)
    print(table)
    assert all("2:4" in row.times for row in table.rows)


def test_a_model_on_the_cpu_deploys_to_the_gpu(generator):
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    sparsify(model, 0.1, generator=generator)
    deployed, _ = deploy(model, torch.randn(4, 64, generator=generator), device="cuda", compile=False)
    assert all(parameter.is_cuda for parameter in deployed.parameters())
    assert not any(parameter.is_cuda for parameter in model.parameters())
