"""Means, deviations and differences, against numbers worked by hand and against simulated experiments."""

import math

import numpy as np
import pytest

from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper.statistics import _CAUSES, Difference, cause_of, is_clear, paired, summary, to_paper


def test_a_single_run_borrows_the_papers_deviation():
    assert to_paper((90.0, None), 1, (89.0, 0.5)) == Difference(1.0, pytest.approx(0.5 * math.sqrt(1 + 1 / 5)))


def test_without_any_deviation_there_is_no_error_and_nothing_is_clear():
    found = to_paper((46_443.0, None), 1, (45_000.0, None))
    assert found == (1443.0, None)
    assert not is_clear(found)


def test_a_difference_is_clear_beyond_two_standard_errors():
    assert is_clear(Difference(0.41, 0.2))
    assert is_clear(Difference(-0.41, 0.2))
    assert not is_clear(Difference(0.4, 0.2))


def test_what_two_digits_do_not_show_is_not_clear():
    assert not is_clear(to_paper((10.003, None), 1, (10.0, 0.0)))
    assert is_clear(to_paper((10.02, None), 1, (10.0, 0.0)))


def test_seeds_that_one_side_lacks_are_left_out_of_a_paired_difference():
    assert paired({1: 2.0, 3: 4.0}, {2: 9.0}) is None
    assert paired({1: 2.0, 3: 4.0}, {1: 1.0}) == (1.0, None)


def test_the_errors_are_the_deviations_of_repeated_experiments():
    draw = np.random.default_rng(0)
    ours, papers = draw.normal(90, 0.3, (4000, 3)), draw.normal(89, 0.6, (4000, 5))
    spread = np.std(ours.mean(1) - papers.mean(1))
    found = [
        to_paper(summary(list(mine)), 3, summary(list(theirs))).error for mine, theirs in zip(ours, papers, strict=True)
    ]
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(spread, rel=0.05)
    shared = draw.normal(0, 5, (4000, 3))  # what a seed does to both is not in the error of their difference
    one, other = ours + shared, draw.normal(80, 0.4, (4000, 3)) + shared
    errors = [paired(dict(enumerate(a)), dict(enumerate(b))).error for a, b in zip(one, other, strict=True)]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std((one - other).mean(1)), rel=0.05)


def test_every_reason_belongs_to_lines_of_a_table_of_its_item():
    for (item, title, name), reason in _CAUSES.items():
        tables = ITEMS[item].render([]).tables
        lines = [line.key for table in tables if title in ("", table.title) for line in table.lines]
        assert any(not name or name in (line, *line.split("/")) for line in lines), (item, title, name)
        assert reason


def test_a_line_without_a_known_reason_has_none():
    assert cause_of("contemporary", "any", "erk/eoi") == ""
    deep = "Test accuracy of 1000-layer networks, density 12.5 %"
    assert cause_of("deep_networks", deep, "snip/ai").startswith("SNIP scores")
    assert cause_of("deep_networks", deep, "snip/eoi") == ""  # as released it differs too
    assert "definition" not in cause_of("contemporary", "any", "grasp/base")
    assert cause_of("contemporary", "any", "grasp/base").startswith("GraSP keeps the largest")
