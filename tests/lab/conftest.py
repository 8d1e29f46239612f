"""What tests of the lab share; puts this folder on the path, so that processes which they start find `sweep_toys`."""

import dataclasses
import os
import sys
from pathlib import Path

import pytest
import sweep_toys

from orthosparse.lab.data import DATA


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """The toy experiments, their log in a folder of the test's own, importable in other processes."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    assert str(Path(__file__).parent) in sys.path
    return sweep_toys.Toys(tmp_path / "started.log")


@pytest.fixture
def few_digits(monkeypatch):
    """The digits are 60 to train on, and 20 to validate and to test."""
    whole, sizes = DATA["digits"], {"train": 60, "validation": 20, "test": 20}

    def few(root, *, validation):
        data = whole(root, validation=validation)
        return dataclasses.replace(data, **{name: getattr(data, name).part(0, size) for name, size in sizes.items()})

    monkeypatch.setitem(DATA, "digits", few)
