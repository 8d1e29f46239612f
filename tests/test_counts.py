import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orthosparse.counts import apportion, check_density, count_of, in_units, least_density, raise_to_floors

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
