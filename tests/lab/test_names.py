"""Names read from source are those of the tables, though nobody imports the tables."""

import importlib
import subprocess
import sys

import pytest

from orthosparse.lab.names import TABLES, check_name, completing, names_of


@pytest.mark.parametrize("option", TABLES)
def test_the_names_read_from_the_source_are_those_of_the_table(option):
    path, table = TABLES[option]
    module = importlib.import_module(
        "orthosparse." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )
    assert list(names_of(option)) == completing(option)() == list(getattr(module, table))


def test_a_wrong_name_is_answered_with_the_names_there_are():
    with pytest.raises(ValueError, match=r"scheme: expected one of ai, base, eoi, .*; got 'magic'"):
        check_name("scheme", "magic")


def test_a_name_that_was_entered_while_the_program_runs_is_known(monkeypatch):
    from orthosparse import SCHEMES

    monkeypatch.setitem(SCHEMES, "mine", SCHEMES["base"])
    check_name("scheme", "mine")


def test_experiments_are_described_without_torch():
    code = "import sys; from orthosparse.lab.paper import ITEMS; [i.experiments() for i in ITEMS.values()]"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert done.stdout.strip() == "False", done.stderr
