import pytest
from torch import nn

from orthosparse.selection import Selection, matches_pattern


@pytest.fixture
def model():
    return nn.ModuleDict({"body": nn.Sequential(nn.Linear(2, 2), nn.Conv1d(1, 1, 1)), "head": nn.Linear(2, 2)})


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ("head", {"head"}),
        ("body", {"body.0", "body.1"}),
        ("body.*", {"body.0", "body.1"}),
        ("*.0", {"body.0"}),
        ("head.weight", {"head"}),
        (nn.Conv1d, {"body.1"}),
        (nn.Sequential, {"body.0", "body.1"}),
        (nn.Embedding, set()),
        (lambda name, module: isinstance(module, nn.Linear) and name.startswith("body"), {"body.0"}),
    ],
)
def test_a_selector_takes_modules_and_what_lies_below(model, selector, taken):
    for form in (selector, [selector]):
        selection = Selection(model, form, "exclude")
        assert {name for name in ("body.0", "body.1", "head") if selection.matches(name, "weight")} == taken


def test_a_name_that_matches_nothing_is_an_error(model):
    with pytest.raises(ValueError, match="exclude: expected names of modules; 'haed' matches none"):
        Selection(model, ["haed"], "exclude")


def test_what_is_no_selector_is_an_error(model):
    with pytest.raises(TypeError, match="include: expected a name, a glob, a module type or a callable; got 3"):
        Selection(model, [3], "include")
    with pytest.raises(TypeError, match="include: expected one selector or a sequence of them; got 3"):
        Selection(model, 3, "include")


def test_brackets_in_a_name_are_a_glob_only_when_they_do_not_match_literally():
    assert matches_pattern("a[0]", "a[0]")
    assert matches_pattern("a[0]", "a0")


def test_only_a_plain_string_names_a_tensor_or_a_module_around_it():
    model = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 2)), "ab": nn.Linear(2, 2)})

    def names(selector, *place):
        return Selection(model, selector, "include").names(*place)

    assert names("a", "a.0", "weight")
    assert names("a.0", "a.0", "weight")
    assert names("a.0.weight", "a.0", "weight")
    assert not names("a", "ab", "weight")
    assert not names("a*", "a.0", "weight")
    assert not names(nn.Linear, "a.0", "weight")
