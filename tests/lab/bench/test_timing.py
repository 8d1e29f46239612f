import pytest

from orthosparse.lab.bench.timing import broken_even, fresh, in_turn, shortest


def test_calls_taken_in_turn_are_compared_with_the_first():
    times = in_turn({"first": lambda: sum(range(10)), "second": lambda: sum(range(1000))}, rounds=3)
    assert times["first"][1] == 1.0
    assert times["second"][1] == pytest.approx(times["second"][0] / times["first"][0])


def test_shortest_is_no_longer_than_any_round():
    # Begin and end of three rounds, by a clock of our own.
    readings = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])
    assert shortest(lambda: None, 3, clock=lambda: next(readings)) == 1.0


def test_fresh_processes_return_the_numbers_they_print():
    assert fresh("print(1.5, 2)") == [1.5, 2.0]


def test_break_even_lies_between_the_densities_around_it():
    assert broken_even("", {0.1: 3.0, 0.2: 2.0, 0.4: 0.5})[1] == pytest.approx(0.2 + 0.2 * 1 / 1.5)
    assert broken_even("", {0.1: 0.9, 0.2: 0.5})[1] == 0
    assert broken_even("", {0.1: 2.0, 0.2: 1.5})[1] == 1
