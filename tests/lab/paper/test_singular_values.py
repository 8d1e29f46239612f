"""The points of section 5.1, and the picture of their rows."""

from collections import Counter

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.paper import ITEMS, singular_values
from orthosparse.lab.paper.singular_values import points, save_picture


def test_the_figure_has_all_activations_distributions_schemes_and_densities_but_no_synflow_under_tanh():
    found = points()
    assert len(found) == len({experiment.key() for experiment in found}) == (4 * 4 + 2) * 3 * 12
    assert Counter(experiment.distribution for experiment in found)["synflow"] == 2 * 3 * 12
    assert {e.activation for e in found if e.distribution == "synflow"} == {"linear", "relu"}
    assert {experiment.density for experiment in found} == {0.03, 0.05, *(n / 10 for n in range(1, 11))}


def test_its_points_are_those_of_the_papers_item():
    assert set(points()) == set(ITEMS["singular_values"].experiments())


def test_fewer_iterations_are_other_points_of_ai_and_the_same_of_the_rest():
    usual, fewer = set(points()), set(points(ai_iterations=100))
    assert {experiment.scheme for experiment in usual & fewer} == {"base", "eoi"}
    assert {experiment.scheme for experiment in usual - fewer} == {"ai"}


@pytest.mark.parametrize("distribution", ["snip", "grasp", "synflow"])
def test_compat_goes_to_the_scores_alone(distribution):
    found = points(compat="paper-code")
    assert {e.distribution for e in found if e.options} == {"snip", "grasp", "synflow"}
    assert all(e.options == {"compat": "paper-code"} for e in found if e.distribution == distribution)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compat": "foo"}, "compat: expected one of paper-code; got 'foo'"),
        ({"ai_iterations": -5}, "ai_iterations: expected 0 or more; got -5"),
    ],
)
def test_what_the_points_would_refuse_is_refused_before_there_are_any(options, message):
    with pytest.raises(ValueError, match=message):
        points(**options)


def rows_of(chosen):
    values = {"base": 0.1, "ai": 0.5, "eoi": 1.0}
    return [
        row_of(each, seed, mean=values[each.scheme] * seed, max=1.5 * values[each.scheme])
        for each in chosen
        for seed in (1, 2)
    ]


def test_a_figure_averages_the_seeds_over_sparsity():
    chosen = [each for each in points() if each.density in (0.1, 1.0) and each.distribution in ("erk", "synflow")]
    shown = singular_values.render(rows_of(chosen)).figures
    assert [figure.title for figure in shown] == [
        f"{name}: {words}" for name in ("ERK", "SynFlow") for words in ("mean singular value", "largest singular value")
    ]
    assert [len(figure.series) for figure in shown] == [12, 12, 6, 6]
    curves = {series.label: (series.xs, series.ys) for series in shown[0].series}
    assert curves["tanh EOI"] == ([0.0, 0.9], [1.5, 1.5])
    assert curves["tanh Base"][1] == pytest.approx([0.15, 0.15])


def test_the_picture_has_a_column_for_each_distribution_that_has_rows(tmp_path):
    chosen = [each for each in points() if each.density == 0.1 and each.distribution in ("erk", "synflow")]
    save_picture(rows_of(chosen), chosen, tmp_path / "deep" / "a.svg")
    text = (tmp_path / "deep" / "a.svg").read_text()
    assert "ERK" in text
    assert "SNIP" not in text
    with pytest.raises(ValueError, match="rows: expected some of these experiments; got none"):
        save_picture([], chosen, tmp_path / "b.svg")
