import torch

from orthosparse.lab.rendering.foot import foot_of


def test_a_foot_tells_command_commit_and_versions(monkeypatch):
    monkeypatch.setenv("ORTHOSPARSE_COMMIT", "abc123")
    first, more, versions = foot_of("orthosparse demo", "with data")
    assert first.startswith("orthosparse demo; commit abc123; cpu")
    assert more == "with data"
    assert f"torch {torch.__version__}" in versions
