"""The command that makes given rows again."""

import shlex
from dataclasses import replace
from itertools import pairwise

import pytest

from lab.paper.rows import chosen, rows_for
from orthosparse.lab.commands._sweep import pairs_of
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper._command import command_of
from orthosparse.lab.paper._rows import family


@pytest.mark.parametrize("change", [{"precision": "fp32"}, {"epochs": 7}, {"precision": "fp64", "epochs": 7}])
@pytest.mark.parametrize("name", ["deep_networks", "contemporary", "dynamic", "angles"])
def test_the_command_of_changed_trainings_makes_their_keys(name, change):
    rows = rows_for([replace(each, **change) for each in ITEMS[name].experiments()][::3])
    words = shlex.split(command_of(name, ITEMS[name], rows))
    options = {option[2:]: value for option, value in pairwise(words) if option in ("--epochs", "--precision")}
    assert options == {field: str(value) for field, value in change.items()}
    made = {pair.experiment.key() for pair in pairs_of(ITEMS[name], [1], smoke=False, **change)}
    assert {row["key"] for row in rows} <= made


@pytest.mark.parametrize("name", ITEMS)
def test_the_command_for_some_rows_of_an_item_needs_no_more_filters_than_tell_them_apart(name):
    experiments = ITEMS[name].experiments()
    assert "--only" not in command_of(name, ITEMS[name], rows_for(experiments))
    one = experiments[len(experiments) // 2]
    command = command_of(name, ITEMS[name], rows_for([one]))
    assert one.key() in {each.key() for each in chosen(command)}
    if len(experiments) > 1:
        assert {family(each.key()) for each in chosen(command)} == {family(one.key())}
