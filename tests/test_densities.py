"""Densities given by layer: patterns, counts, floors, scores, and what is refused."""

import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import orthosparse
from orthosparse.counts import count_of
from orthosparse.densities import densities_by_layer
from orthosparse.distributions import DISTRIBUTIONS

NAMES = ["stem", "blocks.0.fc", "blocks.1.fc", "blocks.1.fc.lora", "head"]
SCORED = ["magnitude", "snip", "grasp", "synflow", "snip_iterative"]


def model_of(width=32):
    g = torch.Generator().manual_seed(0)
    model = nn.Sequential()
    model.add_module("stem", nn.Linear(12, width))
    model.add_module("blocks", nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()))
    model.add_module("head", nn.Linear(width, 5))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2, generator=g)
    return model


def batch():
    g = torch.Generator().manual_seed(1)
    return torch.randn(16, 12, generator=g), torch.randint(5, (16,), generator=g)


def got(report):
    return {row.layer: row.got for row in report.rows}


@pytest.mark.parametrize(
    ("density", "expected"),
    [
        ({"*": 0.1, "head": 1.0}, dict.fromkeys(NAMES[:4], 0.1) | {"head": 1.0}),
        ({"head": 1.0, "*": 0.1}, dict.fromkeys(NAMES, 0.1)),
        ({"blocks.*": 0.2}, dict.fromkeys(NAMES[1:4], 0.2)),
        ({"blocks": 0.2, "blocks.1.fc.lora": 0.5}, {"blocks.0.fc": 0.2, "blocks.1.fc": 0.2, "blocks.1.fc.lora": 0.5}),
        ({"blocks.1.fc": 0}, {"blocks.1.fc": 0.0, "blocks.1.fc.lora": 0.0}),
        ({"blocks.?.fc": 1, "head": 0.5}, {**dict.fromkeys(NAMES[1:4], 1.0), "head": 0.5}),
    ],
)
def test_the_last_match_wins_and_a_name_stands_for_all_below_it(density, expected):
    found = densities_by_layer(density, NAMES)
    assert found == expected
    assert [*found] == [name for name in NAMES if name in expected]
    assert densities_by_layer(found, NAMES) == found


@pytest.mark.parametrize(
    ("density", "error", "message"),
    [
        ({"heads": 0.1}, ValueError, r"density: expected names or globs of layers .*; 'heads' matches none .*'head'\?"),
        ({"norm.*": 0.1}, ValueError, r"'norm.\*' matches none of them$"),
        ({"head": 1.5}, ValueError, r"density: 'head': expected a number in \[0, 1\]; got 1.5"),
        ({"head": "half"}, TypeError, r"density: 'head': expected a number in \[0, 1\]; got 'half' \(str\)"),
        ({}, ValueError, "density: expected a density for at least one layer; got {}"),
        ({3: 0.1}, TypeError, "density: expected a mapping from layer names"),
    ],
)
def test_what_is_no_density_of_a_layer_is_named(density, error, message):
    with pytest.raises(error, match=message):
        densities_by_layer(density, NAMES)
    for call in (orthosparse.sparsify, orthosparse.prune):
        model = model_of()
        before = [parameter.clone() for parameter in model.parameters()]
        with pytest.raises(error, match=message.replace(r" of layers .*;", ".*")):
            call(model, density)
        assert all(map(torch.equal, before, model.parameters()))
        assert not orthosparse.masks_of(model)


@pytest.mark.parametrize("distribution", ["uniform", "er", "erk", *SCORED])
def test_every_layer_has_exactly_its_density_and_the_others_stay_as_they_are(distribution):
    model, dense = model_of(), model_of()
    options = {"rounds": 3} if distribution in ("synflow", "snip_iterative") else {}
    density = {"blocks.*": 0.1, "blocks.2": 0.37, "head": 1.0}
    report = orthosparse.sparsify(model, density, distribution=distribution, scheme="base", batch=batch(), **options)
    assert got(report) == {"blocks.0": count_of(0.1, 1024), "blocks.2": count_of(0.37, 1024), "head": 160}
    assert report.asked == report.got
    assert torch.equal(model.stem.weight, dense.stem.weight)
    assert "stem" in report.left
    assert torch.equal(model.head.weight, dense.head.weight)


@pytest.mark.parametrize("distribution", ["magnitude", "snip"])
def test_scores_choose_inside_each_layer(distribution):
    density = {"stem": 0.3, "head": 0.6}
    masks = DISTRIBUTIONS[distribution](model_of(), density, batch=batch())
    assert [*masks] == ["stem", "head"]
    for name, mask in masks.items():
        scores = masks.scores[name]
        assert int(mask.sum()) == count_of(density[name], mask.numel())
        assert scores[mask].min() > scores[~mask].max()


def test_scores_that_fall_in_rounds_never_come_back_and_end_at_each_density():
    density = {"stem": 0.9, "blocks": 0.02, "head": 0.5}
    masks = DISTRIBUTIONS["synflow"](model_of(), density, input_shape=[12], rounds=5)
    for name, mask in masks.items():
        share = density[name.split(".")[0]]
        assert int(mask.sum()) == count_of(share, mask.numel())
        assert (masks.scores[name][mask] >= 0).all()  # none that an earlier round removed


def test_one_density_for_all_is_the_uniform_distribution():
    seeded = [torch.Generator().manual_seed(3) for _ in range(2)]
    by_layer = DISTRIBUTIONS["uniform"](model_of(), {"*": 0.25}, generator=seeded[0])
    uniform = DISTRIBUTIONS["uniform"](model_of(), 0.25, generator=seeded[1])
    assert all(torch.equal(mask, uniform[name]) for name, mask in by_layer.items())


def test_eoi_is_orthogonal_at_densities_by_layer_and_full_layers_are_dense():
    model = model_of()
    report = orthosparse.sparsify(model, {"blocks": 0.1, "head": 1.0})
    assert all(row.orthogonality < 1e-5 for row in report.rows)
    assert bool(model.head.weight.count_nonzero() == 160)
    assert report.distribution == "given densities"
    assert "given densities + eoi" in str(report)


def test_the_report_says_what_scored_the_weights():
    report = orthosparse.sparsify(model_of(), {"*": 0.3}, distribution="snip", batch=batch())
    assert report.distribution == "snip at given densities"


def test_floors_move_no_entries_between_layers(caplog):
    model = model_of()
    before = [parameter.clone() for parameter in model.parameters()]
    message = (
        r"density: expected at least 0.03125 for 'blocks.0' \(10 entries of 32\): densities given by layer take no "
        r"entries from other layers; floor='minimal' adds what is missing, floor='partial' makes partial isometries"
    )
    for floor in ("raise", "error"):
        with pytest.raises(ValueError, match=message):
            orthosparse.sparsify(model, {"*": 0.5, "blocks.0": 0.01}, floor=floor)
    assert all(map(torch.equal, before, model.parameters()))
    with caplog.at_level(logging.WARNING):
        partial = orthosparse.sparsify(model_of(), {"*": 0.5, "blocks.0": 0.01}, floor="partial")
        minimal = orthosparse.sparsify(model_of(), {"*": 0.5, "blocks.0": 0.01}, floor="minimal")
    assert not caplog.records
    assert got(partial) == {"stem": 192, "blocks.0": 10, "blocks.2": 512, "head": 80}
    assert got(minimal) == {"stem": 192, "blocks.0": 32, "blocks.2": 512, "head": 80}


def test_many_layers_below_their_floors_are_not_all_named():
    model = nn.Sequential(*[nn.Linear(10, 10) for _ in range(40)])
    with pytest.raises(ValueError, match=r"0\.1 for '0' \(1 entries of 10\), .* and 36 more: densities given by layer"):
        orthosparse.sparsify(model, {"*": 0.01})


@given(st.floats(0, 1), st.floats(0, 1))
def test_blocks_have_the_nearest_number_that_a_density_asks_for(first, second):
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 32))
    masks = DISTRIBUTIONS["uniform"](
        model, {"0": first, "1": second}, layers=orthosparse.find_layers(model, structure="block:16")
    )
    assert [int(mask.sum()) for mask in masks.values()] == [256 * count_of(first, 16), 256 * count_of(second, 8)]


@pytest.mark.parametrize("distribution", ["erk", "magnitude"])
def test_structures_are_kept(distribution):
    model = model_of(64)
    report = orthosparse.sparsify(
        model, {"blocks": 0.3, "head": 0.5}, structure="block:16", distribution=distribution, scheme="base"
    )
    assert got(report) == {"blocks.0": 5 * 256, "blocks.2": 5 * 256, "head": 160}
    assert report.asked == 2 * count_of(0.3, 4096) + 160
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    with pytest.raises(ValueError, match=r"density: expected 0\.5 with structure '2:4'; got 0\.3 for '1'"):
        orthosparse.sparsify(model, {"0": 0.5, "1": 0.3}, structure="2:4")
    assert orthosparse.sparsify(model, {"0": 0.5}, structure="2:4", distribution="erk").got == 128


def test_prune_goes_down_layer_by_layer_inside_its_masks():
    model = model_of()
    first = orthosparse.prune(model, {"blocks": 0.5, "head": 0.5})
    assert got(first) == {"blocks.0": 512, "blocks.2": 512, "head": 80}
    assert first.distribution == "magnitude at given densities"
    before = orthosparse.masks_of(model)
    second = orthosparse.prune(model, {"blocks.0": 0.1})
    after = orthosparse.masks_of(model)
    assert got(second) == {"blocks.0": 102}
    assert bool((after["blocks.0"] <= before["blocks.0"]).all())
    assert all(torch.equal(after[name], before[name]) for name in ("blocks.2", "head"))
    with pytest.raises(
        ValueError, match=r"density: expected at most 0\.0996094, that of the mask of 'blocks\.0'; got 0\.2"
    ):
        orthosparse.prune(model, {"blocks.0": 0.2, "head": 0.1})
    assert all(torch.equal(mask, after[name]) for name, mask in orthosparse.masks_of(model).items())


def test_dense_ends_and_the_released_code_take_one_density():
    for distribution, options in (("dense_ends", {}), ("uniform", {"compat": "paper-code"})):
        with pytest.raises(TypeError, match=r"density: expected a number in \[0, 1\]; got \{'head': 0.1\} \(dict\)"):
            orthosparse.sparsify(model_of(), {"head": 0.1}, distribution=distribution, **options)


def test_a_distribution_of_ones_own_is_handed_the_densities():
    seen = []

    def own(model, density, *, layers, batch, loss, generator):
        seen.append((density, [*layers]))
        return {name: torch.ones(layer.shape, dtype=torch.bool) for name, layer in layers.items()}

    orthosparse.sparsify(model_of(), {"head": 0.5}, distribution=own)
    assert seen == [({"head": 0.5}, ["head"])]
