"""The tiny version of every item, run once for all tests."""

from functools import cache

import pytest

from orthosparse.lab.pairs import Pair, perform
from orthosparse.lab.paper import ITEMS


@cache
def performed(experiment):
    return perform(Pair(experiment, 1), device="cpu")


@pytest.fixture(scope="session")
def tiny_rows():
    """Return a function from the name of an item to the rows of its tiny version."""
    return lambda name: [performed(experiment) for experiment in ITEMS[name].experiments(smoke=True)]
