"""One row of a report, against numbers worked by hand."""

import pytest
import torch
from torch import nn

from orthosparse.layers import find_layers
from orthosparse.rows import PROBLEMS, row_of, structure_note


def row(module, mask, gain=1.0, **options):
    (layer,) = find_layers(nn.Sequential(module), **options).values()
    return row_of(layer, layer.weight() * mask, mask, asked=5, overlap=None, gain=gain)


def test_a_row_counts_entries_and_what_they_do_not_reach():
    linear, mask = nn.Linear(4, 3), torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]).bool()
    nn.init.ones_(linear.weight)
    found = row(linear, mask)
    assert (found.layer, found.shape, found.numel, found.asked, found.got) == ("0", (3, 4), 12, 5, 3)
    assert (found.dead_outputs, found.outputs, found.dead_inputs, found.inputs) == (1, 3, 2, 4)
    # A A^T = [[2, 0, 1], [0, 0, 0], [1, 0, 1]], so that A A^T - I has squares 1 + 1 + 1 + 1
    assert found.orthogonality == pytest.approx(2.0)
    assert found.warnings == ["0: 1 of 3 outputs unreachable", "0: 2 of 4 inputs unreachable"]


def test_the_score_is_that_of_the_weight_over_the_gain():
    linear = nn.Linear(3, 3)
    with torch.no_grad():
        linear.weight.copy_(2.0 * torch.eye(3))
    assert row(linear, torch.ones(3, 3).bool(), gain=2.0).orthogonality == pytest.approx(0.0, abs=1e-6)


def test_an_empty_layer_has_one_problem():
    found = row(nn.Linear(4, 3), torch.zeros(3, 4).bool())
    assert found.warnings == ["0: empty, nothing passes"]
    assert set(found.problems) <= set(PROBLEMS)


def test_a_layer_says_why_it_has_other_units():
    model = nn.Sequential(nn.Conv2d(16, 16, 3), nn.Linear(16, 10), nn.Linear(32, 32))
    notes = [structure_note(layer, "block:16") for layer in find_layers(model, structure="block:16").values()]
    assert notes == ["entries: a kernel of 3 x 3", "entries: 16 does not divide its sides", ""]


def test_a_frozen_layer_keeps_its_start():
    linear = nn.Linear(3, 3).requires_grad_(False)
    assert row(linear, torch.ones(3, 3).bool(), include=["0"]).note == "frozen: keeps this start"
