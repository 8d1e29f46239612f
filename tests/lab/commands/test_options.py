import pytest

from orthosparse.lab.commands._options import named_value


@pytest.mark.parametrize(
    ("text", "pair"),
    [("a=1", ("a", 1)), ("a=0.5", ("a", 0.5)), ("a=true", ("a", True)), ("a=x=y", ("a", "x=y")), ("a=", ("a", ""))],
)
def test_a_value_is_json_where_it_can_be(text, pair):
    assert named_value(text) == pair


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_a_name_and_an_equals_sign_are_needed(text):
    with pytest.raises(ValueError, match="option: expected NAME=VALUE; got"):
        named_value(text)
