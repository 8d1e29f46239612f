import logging
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import orthosparse
from contracts.states import assert_same
from orthosparse.counts import (
    apportion,
    check_density,
    count_of,
    densities_by_layer,
    in_units,
    least_density,
    raise_to_floors,
)
from orthosparse.distributions import DISTRIBUTIONS

LAYERS = st.lists(st.tuples(st.floats(0.001, 1e6), st.integers(1, 10_000)), min_size=1, max_size=8)


@pytest.mark.parametrize("wrong", [-0.1, 1.0000001, math.nan, math.inf])
def test_a_density_outside_the_unit_interval_is_refused(wrong):
    with pytest.raises(ValueError, match=r"density: expected a number in \[0, 1\]; got"):
        check_density(wrong)


@pytest.mark.parametrize("wrong", [True, "0.1", None, [0.1]])
def test_a_density_that_is_no_number_is_refused(wrong):
    with pytest.raises(TypeError, match=r"density: expected a number in \[0, 1\]; got"):
        check_density(wrong)


@given(st.floats(0, 1), st.integers(0, 10**9))
def test_a_count_is_the_nearest_integer(density, size):
    assert abs(count_of(density, size) - density * size) <= 0.5 + 1e-6
    assert 0 <= count_of(density, size) <= size


def test_halves_round_up():
    assert [count_of(0.5, size) for size in (1, 2, 3, 5)] == [1, 1, 2, 3]


@given(LAYERS, st.floats(0, 1))
def test_apportioned_counts_have_the_total_and_respect_the_caps(layers, density):
    shares = {str(i): share for i, (share, _) in enumerate(layers)}
    caps = {str(i): cap for i, (_, cap) in enumerate(layers)}
    total = int(density * sum(caps.values()))
    counts = apportion(shares, total, caps)
    assert sum(counts.values()) == total
    assert all(0 <= counts[name] <= caps[name] for name in caps)


@given(LAYERS, st.floats(0, 1))
def test_layers_that_are_not_full_are_within_one_of_their_proportion(layers, density):
    shares = {str(i): share for i, (share, _) in enumerate(layers)}
    caps = {str(i): cap for i, (_, cap) in enumerate(layers)}
    counts = apportion(shares, int(density * sum(caps.values())), caps)
    rates = [(counts[n] - 1) / shares[n] for n in caps if counts[n] > 0]
    free = [(counts[n] + 1) / shares[n] for n in caps if counts[n] < caps[n]]
    # What a layer with room got per unit of share is not below what any other got, up to one entry each.
    assert not rates or not free or max(rates) <= min(free) * (1 + 1e-9)


def test_remainders_decide_and_ties_go_to_the_earlier_layer():
    # Quotas 1.5, 1.5, 4: the half goes to the first.
    assert apportion({"a": 3.0, "b": 3.0, "c": 8.0}, 7, dict.fromkeys("abc", 9)) == {"a": 2, "b": 1, "c": 4}


def test_a_layer_without_a_share_gets_nothing():
    assert apportion({"a": 0.0, "b": 1.0}, 5, {"a": 9, "b": 9}) == {"a": 0, "b": 5}


def test_a_total_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"total: expected a count in \[0, 9\]; got 10"):
        apportion({"a": 0.0, "b": 1.0}, 10, {"a": 9, "b": 9})


@pytest.mark.parametrize("share", [-1.0, math.nan, math.inf])
def test_a_share_that_is_no_share_is_refused(share):
    with pytest.raises(ValueError, match="shares: expected finite numbers"):
        apportion({"a": share}, 1, {"a": 9})


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100)), min_size=1, max_size=10))
def test_floors_are_met_and_the_total_is_kept(layers):
    counts = {str(i): count for i, (count, _) in enumerate(layers)}
    floors = {str(i): floor for i, (_, floor) in enumerate(layers)}
    if sum(counts.values()) < sum(floors.values()):
        with pytest.raises(ValueError, match="sum of the floors"):
            raise_to_floors(counts, floors)
        return
    raised = raise_to_floors(counts, floors)
    assert sum(raised.values()) == sum(counts.values())
    assert all(raised[name] >= floors[name] for name in floors)
    assert all(raised[n] <= max(counts[n], floors[n]) for n in floors)


def test_counts_above_their_floors_stay_as_they_are():
    counts = {"a": 10, "b": 7}
    assert raise_to_floors(counts, {"a": 10, "b": 3}) == counts


@given(st.integers(1, 10**12), st.integers(0, 10**12))
def test_the_least_density_is_enough_at_its_own_value_and_near(size, count):
    count %= size + 1
    density = least_density(count, size)
    assert count_of(density, size) >= count
    assert density == float(f"{density:.4g}")
    assert density <= count / size * 1.001


UNITS = st.lists(
    st.tuples(st.sampled_from([1, 256, 1024, 4096]), st.integers(1, 60), st.floats(0, 1)), min_size=1, max_size=8
)


@given(UNITS)
def test_counts_in_units_are_multiples_within_their_caps_and_keep_the_total(layers):
    units = {str(i): unit for i, (unit, _, _) in enumerate(layers)}
    caps = {str(i): unit * number for i, (unit, number, _) in enumerate(layers)}
    counts = {str(i): int(share * unit * number) for i, (unit, number, share) in enumerate(layers)}
    result = in_units(counts, units, caps)
    assert list(result) == list(counts)
    assert all(result[name] % units[name] == 0 and 0 <= result[name] <= caps[name] for name in counts)
    # Each size of unit rounds by less than one, and a smaller size takes that up where it has room for all of it.
    smallest = min(units.values())
    sizes = sorted(set(units.values()))
    rooms = {size: sum(caps[name] for name in counts if units[name] < size) for size in sizes}
    if all(rooms[size] >= 2 * size for size in sizes[1:]):
        assert abs(sum(result.values()) - sum(counts.values())) <= smallest / 2
    assert abs(sum(result.values()) - sum(counts.values())) < max(units.values())


@given(UNITS)
def test_counts_that_are_in_units_already_stay(layers):
    units = {str(i): unit for i, (unit, _, _) in enumerate(layers)}
    caps = {str(i): unit * number for i, (unit, number, _) in enumerate(layers)}
    counts = {str(i): unit * int(share * number) for i, (unit, number, share) in enumerate(layers)}
    assert in_units(counts, units, caps) == counts


def test_units_go_by_largest_remainder_and_entries_take_up_the_rest():
    # 2.6 + 1.2 + 1.3 blocks are 5.1: the whole 5, and what is left to the entries.
    caps = {"a": 16 * 256, "b": 16 * 256, "c": 16 * 256, "d": 4000}
    counts = {"a": 666, "b": 307, "c": 333, "d": 100}
    units = {"a": 256, "b": 256, "c": 256, "d": 1}
    assert in_units(counts, units, caps) == {"a": 768, "b": 256, "c": 256, "d": 126}
    # Without entries, the nearest number of blocks.
    assert in_units({"a": 666, "b": 410}, units, caps) == {"a": 512, "b": 512}


def test_entries_that_are_full_give_what_larger_units_need():
    assert in_units({"a": 300, "b": 500}, {"a": 256, "b": 1}, {"a": 1024, "b": 500}) == {"a": 512, "b": 288}


def test_a_unit_that_does_not_divide_its_layer_is_refused():
    with pytest.raises(ValueError, match="units: expected a divisor of 100, the size of 'a'; got 16"):
        in_units({"a": 10}, {"a": 16}, {"a": 100})


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
        ({"blocks.?.fc": 0.3, "*.1.*": 0.1}, {"blocks.0.fc": 0.3, "blocks.1.fc": 0.1, "blocks.1.fc.lora": 0.1}),
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
        ({"head": 1.0, "*": 0.1}, ValueError, r"density: expected '\*' before 'head', which it overrides; the last"),
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
    assert_same(uniform, by_layer)


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
    assert_same(after, orthosparse.masks_of(model))


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
