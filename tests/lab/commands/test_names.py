"""Names for the shell are those of the tables, though nobody imports the tables."""

import importlib

import pytest

from orthosparse.lab.commands._names import TABLES, completing, names_of


@pytest.mark.parametrize("option", TABLES)
def test_the_names_read_from_the_source_are_those_of_the_table(option):
    path, table = TABLES[option]
    module = importlib.import_module(
        "orthosparse." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )
    assert names_of(option) == list(getattr(module, table))
    assert completing(option)() == names_of(option)
