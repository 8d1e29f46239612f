"""Measured choices."""

import pytest
import torch
from torch import nn

from compacting.models import batch_for, masked_net
from orthosparse import compact
from orthosparse.compacting import timing
from orthosparse.compacting.forms import candidates_of


def test_layers_of_the_same_sizes_are_timed_once(generator, monkeypatch):
    model = masked_net(generator, model=nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)]))
    for layer in model:
        layer.weight_mask.copy_(torch.eye(8).bool())
    timed = []
    monkeypatch.setattr(timing, "_ratio", lambda candidate, inputs: timed.append(candidate.name) or 1.5)
    ratios = timing.ratios_of(model, torch.zeros(2, 8, dtype=torch.float64), candidates_of(model))
    assert ratios == dict.fromkeys("0123", 1.5)
    assert timed == ["0"]


@pytest.mark.parametrize("form", ["tensor", "tuple", "dict"])
def test_a_batch_may_be_a_tensor_arguments_or_keywords(form, generator):
    model = masked_net(generator)
    x, _ = batch_for(model, generator)
    batch = {"tensor": x, "tuple": (x,), "dict": {"x": x}}[form]
    assert set(timing.ratios_of(model, batch, candidates_of(model))) == {"stem", "mix", "fc", "head"}


def test_the_batch_stays_as_it_is_though_the_model_changes_it_in_place(generator):
    model = nn.Sequential(nn.ReLU(inplace=True), masked_net(generator, model=nn.Sequential(nn.Linear(8, 8))))
    batch = -torch.ones(2, 8, dtype=torch.float64)
    assert timing.ratios_of(model, batch, candidates_of(model)).keys() == {"1.0"}
    assert bool((batch == -1).all())


def test_a_forward_pass_that_fails_leaves_no_hooks(generator):
    model = masked_net(generator)
    with pytest.raises(ValueError, match="batch: the model cannot take it"):
        compact(model, torch.zeros(1, 7, dtype=torch.float64))
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.gpu
def test_on_a_gpu_large_sparse_layers_are_exchanged_and_small_ones_are_not(generator):
    model = nn.Sequential(nn.Linear(4096, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 64)).bfloat16()
    from orthosparse import sparsify

    sparsify(model, 0.1, structure="block:64", scheme="base", distribution="uniform", generator=generator)
    table = compact(model.cuda(), torch.randn(16_384, 4096, device="cuda", dtype=torch.bfloat16))
    assert [row.form for row in table.rows][:2] == ["block:64"] * 2
    assert table.rows[0].ratio > 2
