import time

import pytest

from orthosparse.lab.bench.timing import fresh, in_turn, shortest


def test_calls_taken_in_turn_are_compared_with_the_first():
    times = in_turn({"short": lambda: time.sleep(0.002), "long": lambda: time.sleep(0.02)}, rounds=3)
    assert times["short"][1] == 1.0
    assert times["long"][1] == pytest.approx(times["long"][0] / times["short"][0])
    assert times["long"][1] > 2


def test_shortest_is_no_longer_than_any_round():
    waits = iter([0.03, 0.0, 0.03])
    assert shortest(lambda: time.sleep(next(waits)), 3) < 0.02


def test_fresh_processes_return_the_numbers_they_print():
    assert fresh("print(1.5, 2)") == [1.5, 2.0]
