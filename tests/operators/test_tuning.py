"""The choice among ways to launch a kernel."""

import pytest
import torch

from orthosparse.operators import tuning


@pytest.fixture
def with_gpu(monkeypatch):
    """Let a table of milliseconds stand for a GPU; return what was launched."""
    times, launched = {"a": 3.0, "b": 1.0, "c": float("inf")}, []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(tuning, "measured", {})

    def measure(launch, config):
        launched.append(config)
        return times[config]

    monkeypatch.setattr(tuning, "_milliseconds", measure)
    return launched


def test_the_fastest_is_chosen_and_measured_once_for_each_key(with_gpu):
    assert [tuning.fastest("key", "abc", print) for _ in range(3)] == ["b"] * 3
    assert with_gpu == ["a", "b", "c"]
    assert tuning.fastest("other", "ac", print) == "a"


def test_while_a_graph_is_captured_nothing_is_measured_or_kept(with_gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert tuning.fastest("key", "abc", print) == "a"
    assert not tuning.measured


def test_under_deterministic_algorithms_the_first_is_used_whatever_was_measured(with_gpu):
    tuning.fastest("key", "abc", print)
    torch.use_deterministic_algorithms(True)
    try:
        assert tuning.fastest("key", "abc", print) == "a"
    finally:
        torch.use_deterministic_algorithms(False)
