import pytest

from lab.training.stacked.runs import Kept


@pytest.fixture
def kept(monkeypatch):
    return Kept(monkeypatch)
