"""Every argument of every public function is described in its docstring, so that the reference is complete.

Described is what has an entry under *Args* or *Attributes*, or stands in backticks in a sentence; and where the
docstring says that "the keywords are those of `other`", what `other` describes. Four names explain themselves. What all
members of a family take is described once, in the docstring of their package.
"""

import inspect
import re

import pytest

import orthosparse
from orthosparse import distributions, givens, init, isometry, ramanujan, schemes

SELF_EXPLANATORY = {"model", "weight", "shape", "dtype"}
FAMILIES = {
    "distributions": (distributions, orthosparse.DISTRIBUTIONS, {"density", "layers", "batch", "loss", "generator"}),
    "schemes": (schemes, orthosparse.SCHEMES, {"masks", "layers", "gain", "bias_std", "generator"}),
}


def is_ours(entry):
    return callable(entry) and getattr(entry, "__module__", "").startswith("orthosparse")


def public():
    yield from ((name, getattr(orthosparse, name), set()) for name in orthosparse.__all__)
    for package in (init, isometry, givens, ramanujan, distributions):
        names = getattr(package, "__all__", None) or [name for name in vars(package) if not name.startswith("_")]
        found = {name: getattr(package, name) for name in names}
        if package is ramanujan:
            found = {
                name: entry for name, entry in found.items() if is_ours(entry) and entry.__module__ == package.__name__
            }
        yield from ((f"{package.__name__}.{name}", entry, set()) for name, entry in found.items())
    for family, (_, table, shared) in FAMILIES.items():
        yield from ((f"{family}.{name}", member, shared) for name, member in table.items())


PUBLIC = {name: (entry, shared) for name, entry, shared in public() if is_ours(entry)}


def arguments_of(entry):
    if inspect.isclass(entry) and issubclass(entry, dict):
        entry = entry.__init__
        if not hasattr(entry, "__code__"):
            return []  # a dictionary like any other
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(entry).parameters.values()
    return [each.name for each in parameters if each.kind not in variable and each.name != "self"]


def described_by(entry):
    text = inspect.getdoc(entry) or ""
    sections = re.findall(r"^(?:Args|Attributes):\n((?:    .*\n|\n)*)", text + "\n", re.MULTILINE)
    entries = [entry for section in sections for entry in re.findall(r"^    ([\w, ]+):", section, re.MULTILINE)]
    names = {name for entry in entries for name in entry.split(", ")}
    names |= set(re.findall(r"`(\w+)`", text))
    for other in re.findall(r"keywords are those\s+of\s+`(\w+)`", text):
        names |= described_by(inspect.getmodule(entry).__dict__[other])
    return names


@pytest.mark.parametrize("name", PUBLIC)
def test_every_argument_is_described(name):
    entry, shared = PUBLIC[name]
    lacking = set(arguments_of(entry)) - SELF_EXPLANATORY - shared - described_by(entry)
    assert not lacking, f"{name} does not say what these are: {', '.join(sorted(lacking))}"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_all_members_take_is_described_in_the_docstring_of_their_package(family):
    package, table, shared = FAMILIES[family]
    text = inspect.getdoc(package)
    assert all(re.search(rf"\b{name}\b", text) for name in shared)
    for member in table.values():
        assert shared <= set(arguments_of(member))


def test_an_argument_that_nobody_describes_is_noticed():
    def undocumented(model, colour, size):
        """Return nothing, of that `size`."""

    assert set(arguments_of(undocumented)) - SELF_EXPLANATORY - described_by(undocumented) == {"colour"}
