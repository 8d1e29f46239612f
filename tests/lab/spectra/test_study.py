from collections import Counter

import pytest

from orthosparse.lab.paper import ITEMS
from orthosparse.lab.spectra import experiments


def test_the_figure_has_all_activations_distributions_schemes_and_densities_but_no_synflow_under_tanh():
    found = experiments()
    assert len(found) == len({experiment.key() for experiment in found}) == (4 * 4 + 2) * 3 * 12
    assert Counter(experiment.distribution for experiment in found)["synflow"] == 2 * 3 * 12
    assert {e.activation for e in found if e.distribution == "synflow"} == {"linear", "relu"}
    assert {experiment.density for experiment in found} == {0.03, 0.05, *(n / 10 for n in range(1, 11))}


def test_its_points_are_those_of_the_papers_item():
    assert set(experiments()) == set(ITEMS["singular_values"].experiments())


def test_fewer_iterations_are_other_points_of_ai_and_the_same_of_the_rest():
    usual, fewer = set(experiments()), set(experiments(ai_iterations=100))
    assert {experiment.scheme for experiment in usual & fewer} == {"base", "eoi"}
    assert {experiment.scheme for experiment in usual - fewer} == {"ai"}


@pytest.mark.parametrize("distribution", ["snip", "grasp", "synflow"])
def test_compat_goes_to_the_scores_alone(distribution):
    found = experiments(compat="paper-code")
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
        experiments(**options)
