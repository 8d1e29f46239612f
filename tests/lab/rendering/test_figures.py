import numpy as np
import pytest

from orthosparse.lab.rendering.figures import histograms, lines, profiles


def test_curves_of_starts_have_their_names_and_colours():
    figure = lines("T", {"dense": ([1, 2], [3.0, 4.0]), "eoi": ([1, 2], [1.0, 1.0])}, x="epoch", y="loss")
    assert [(series.label, series.role, series.ys) for series in figure.series] == [
        ("dense", "dense", [3.0, 4.0]),
        ("EOI", "eoi", [1.0, 1.0]),
    ]


def test_a_profile_counts_the_layers():
    figure = profiles("T", {"base": [1.0, 0.0, 2.0]}, y="norm")
    assert list(figure.series[0].xs) == [1, 2, 3]
    assert figure.log_y


@pytest.mark.parametrize("log", [False, True])
def test_histograms_show_shares_of_all_values_over_common_bins(log):
    values = {"base": [0.0, 0.0, 0.001, 0.001], "eoi": [1.0, 1.0, 1.01, 0.99]}
    base, eoi = histograms("T", values, x="value", log=log).series
    assert base.xs == eoi.xs
    # What a logarithmic axis cannot show is missing from the sum.
    assert sum(base.ys) == pytest.approx(0.5 if log else 1.0)
    assert sum(eoi.ys) == pytest.approx(1.0)
    gaps = np.diff(np.log(base.xs) if log else base.xs)
    np.testing.assert_allclose(gaps, gaps[0])
