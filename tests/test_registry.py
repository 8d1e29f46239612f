import pytest

from orthosparse.registry import lookup, matches_pattern


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="scheme: expected one of ai, base; got 'eio'"):
        lookup({"base": 1, "ai": 2}, "eio", "scheme")


@pytest.mark.parametrize("name", [None, 3, ["ai"]])
def test_a_name_that_is_no_string_is_refused_the_same_way(name):
    with pytest.raises(ValueError, match="scheme: expected one of ai"):
        lookup({"ai": 2}, name, "scheme")


def test_brackets_in_a_name_are_a_glob_only_when_they_do_not_match_literally():
    assert matches_pattern("a[0]", "a[0]")
    assert matches_pattern("a[0]", "a0")
