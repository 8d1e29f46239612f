"""The tiny version of every item, run once by the command for all tests."""

import pytest

from orthosparse.lab import cli
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.sweep.store import Store


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """Return the exit status of `paper run --smoke` over all items, and the file with its rows."""
    store = tmp_path_factory.mktemp("paper") / "results.sqlite"
    options = ["--smoke", "--seeds", "1", "--device", "cpu", "--store", str(store)]
    return cli.main(["paper", "run", *ITEMS, *options]), store


@pytest.fixture(scope="session")
def tiny_rows(tiny_run):
    """Return a function from the name of an item to the rows of its tiny version."""
    store = Store(tiny_run[1])

    def rows(name):
        keys = [experiment.key() for experiment in ITEMS[name].experiments(smoke=True)]
        found = store.rows(keys=keys)
        assert len(found) == len(keys)
        return found

    return rows
