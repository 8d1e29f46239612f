"""Puts this folder on the path, so that processes which tests start find `sweep_toys` too."""

import sys
from pathlib import Path

import pytest
import sweep_toys


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """The toy experiments, their log in a folder of the test's own, importable in other processes."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    assert str(Path(__file__).parent) in sys.path
    return sweep_toys.Toys(tmp_path / "started.log")
