"""Times of calls in turn."""

import torch

from orthosparse.stopwatch import seconds_in_turn

CPU = torch.device("cpu")


def test_calls_are_taken_in_turn_in_the_mode_of_the_caller():
    seen = []
    calls = {name: lambda name=name: seen.append((name, torch.is_grad_enabled())) for name in "ab"}
    times = seconds_in_turn(calls, CPU, block=0.0, rounds=2)
    assert seen == [("a", True), ("b", True)] * 3  # once before, to warm up
    assert set(times) == {"a", "b"}


def test_more_work_takes_more_time():
    few, many = torch.ones(64, 64), torch.ones(512, 512)
    times = seconds_in_turn({"few": lambda: few @ few, "many": lambda: many @ many}, CPU, block=0.001, rounds=7)
    assert 0 < times["few"] < times["many"]
