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
    monkeypatch.setattr(tuning, "chosen", {})

    def measure(launch, config):
        launched.append(config)
        return times[config]

    monkeypatch.setattr(tuning, "_milliseconds", measure)
    return launched


def test_the_fastest_is_chosen_and_kept_under_its_key(with_gpu):
    assert tuning.fastest("key", "abc", print) == "b"
    assert with_gpu == ["a", "b", "c"]
    assert tuning.chosen == {"key": "b"}
    assert tuning.fastest("other", "ac", print) == "a"
    assert tuning.measured["other"] == {"a": 3.0, "c": float("inf")}


def test_while_a_graph_is_captured_nothing_is_measured_or_kept(with_gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert tuning.fastest("key", "abc", print) == "a"
    assert not tuning.measured
    assert not tuning.chosen
