import pytest

from orthosparse.lab.experiments.expected_density import ExpectedDensity


def test_expectation_and_draw_start_at_the_identity_and_stay_together():
    metrics = ExpectedDensity(40).run(1)
    expected, measured = metrics["curves"]["expected"], metrics["curves"]["measured"]
    assert len(expected) == len(measured) == metrics["rotations"] + 1
    assert expected[0] == pytest.approx(measured[0]) == 1 / 40
    assert expected[-1] >= 0.98
    assert 0 < metrics["largest_distance"] < 0.15


def test_rotations_can_be_given_and_seeds_differ():
    one, two = (ExpectedDensity(40, 60).run(seed) for seed in (1, 2))
    assert one["rotations"] == 60
    assert one["curves"]["expected"] == two["curves"]["expected"]
    assert one["curves"]["measured"] != two["curves"]["measured"]
