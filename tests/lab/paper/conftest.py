"""The tiny version of every item, run once by the command for all tests."""

from pathlib import Path

import pytest

from orthosparse.lab import cli
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper._chapters import chapters_of
from orthosparse.lab.paper._rows import read_rows
from orthosparse.lab.sweep.store import Store

ROOT = Path(__file__).parents[3]

WITH_TIMM = "imagenet"  # trains a network of timm's, which not everybody can import


def run(store, items):
    """Return the exit status of `paper run --smoke`."""
    return cli.main(["paper", "run", *items, "--smoke", "--seeds", "1", "--device", "cpu", "--store", str(store)])


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """Return the exit status of `paper run --smoke` over all items but one, and the file with its rows."""
    store = tmp_path_factory.mktemp("paper") / "results.sqlite"
    return run(store, [name for name in ITEMS if name != WITH_TIMM]), store


@pytest.fixture(scope="session")
def tiny_rows(request, tmp_path_factory):
    """Return a function from the name of an item to the rows of its tiny version."""

    def rows(name):
        if name == WITH_TIMM:  # alone, as the others need not run where only this one is tested
            path = tmp_path_factory.mktemp("timm") / "results.sqlite"
            assert run(path, [name]) == 0
        else:
            _, path = request.getfixturevalue("tiny_run")
        store = Store(path)
        keys = [experiment.key() for experiment in ITEMS[name].experiments(smoke=True)]
        found = store.rows(keys=keys)
        assert len(found) == len(keys)
        return found

    return rows


@pytest.fixture(scope="session")
def committed():
    """Return the chapters of the committed rows, and what of the files could not be read."""
    rows, problems = read_rows((ROOT / "results").glob("*.jsonl"))
    return chapters_of(ITEMS, rows), problems
