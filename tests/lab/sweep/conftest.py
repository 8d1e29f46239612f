import pytest

from orthosparse.lab.sweep.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results.sqlite")
