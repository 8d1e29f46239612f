import pytest

from orthosparse.lab.commands._options import check_at_least, named_value, whole_numbers


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("a=1", ("a", 1)),
        ("a=0.5", ("a", 0.5)),
        ("a=b-c", ("a", "b-c")),
        ("a=true", ("a", True)),
        ("a=x=y", ("a", "x=y")),
        ("a=", ("a", "")),
    ],
)
def test_a_value_is_json_where_it_can_be(text, pair):
    assert named_value(text) == pair


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_a_name_and_an_equals_sign_are_needed(text):
    with pytest.raises(ValueError, match="option: expected NAME=VALUE; got"):
        named_value(text)


def test_numbers_are_taken_once_each_in_their_order():
    assert whole_numbers(" 2,1, 2") == [2, 1]


@pytest.mark.parametrize("text", ["", "1,,2", "-1", "1.5", "one", "²"])
def test_what_is_no_list_of_whole_numbers_is_refused(text):
    with pytest.raises(ValueError, match="seeds: expected whole numbers with commas between them, such as 1,2,3; got"):
        whole_numbers(text)


def test_a_number_below_the_least_is_named_and_one_that_was_not_given_is_not():
    check_at_least(1, samples=1, limit=None)
    with pytest.raises(ValueError, match="limit: expected 1 or more; got -1"):
        check_at_least(1, samples=1, limit=-1)
