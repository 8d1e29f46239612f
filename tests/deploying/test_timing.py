"""Times of calls in turn."""

import torch

from orthosparse.deploying.timing import on_threads, seconds

CPU = torch.device("cpu")


def test_calls_are_taken_in_turn_without_gradients():
    seen = []

    def call(name):
        return lambda: seen.append((name, torch.is_inference_mode_enabled()))

    times = seconds({"a": call("a"), "b": call("b")}, CPU, block=0.0, rounds=3)
    assert [name for name, _ in seen] == ["a", "b"] * 4  # once before, to warm up
    assert all(inference for _, inference in seen)
    assert set(times) == {"a", "b"}


def test_more_work_takes_more_time():
    few, many = torch.ones(64, 64), torch.ones(512, 512)
    times = seconds({"few": lambda: few @ few, "many": lambda: many @ many}, CPU, block=0.001)
    assert 0 < times["few"] < times["many"]


def test_threads_are_put_back_after_an_error():
    before = torch.get_num_threads()
    try:
        with on_threads(before + 1):
            assert torch.get_num_threads() == before + 1
            raise KeyError
    except KeyError:
        pass
    assert torch.get_num_threads() == before
