"""A lazy table imports its members when they are looked up, and not before."""

import subprocess
import sys

import pytest

from orthosparse.lazy import LazyTable


def test_a_member_is_imported_when_it_is_looked_up_and_not_before():
    code = (
        "import sys; from orthosparse.lazy import LazyTable;"
        "table = LazyTable({'d': 'decimal:Decimal', 'f': 'fractions'});"
        "print(list(table), len(table), 'd' in table, 'decimal' in sys.modules);"
        "print(table['d'], table['f'].Fraction(1, 2))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['d', 'f'] 2 True False", "<class 'decimal.Decimal'> 1/2"]


def test_members_can_be_added_exchanged_and_removed():
    table = LazyTable({"one": "math:pi"})
    table["two"] = 2
    assert dict(table) == {"one": table["one"], "two": 2}
    assert list(table) == ["one", "two"]
    table["one"] = 1
    assert {**table} == {"one": 1, "two": 2}
    del table["one"]
    assert list(table) == ["two"]
    with pytest.raises(KeyError):
        table["one"]
    with pytest.raises(KeyError):
        del table["one"]


@pytest.mark.parametrize(("family", "used", "unused"), [("DISTRIBUTIONS", "erk", "grasp"), ("SCHEMES", "eoi", "sao")])
def test_sparsify_imports_only_the_members_that_it_uses(family, used, unused):
    code = (
        "import sys, torch, orthosparse; orthosparse.sparsify(torch.nn.Linear(8, 8), 0.5);"
        f"print([f'orthosparse.{family.lower()}.{{n}}' in sys.modules for n in ({used!r}, {unused!r})])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[True, False]"
