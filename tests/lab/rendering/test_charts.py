import re

import numpy as np
import pytest
from matplotlib import rcParams

from orthosparse.lab.rendering import charts
from orthosparse.lab.rendering.theme import COLOURS


def chart():
    return charts.lines({"dense": ([1, 2], [3.0, 4.0]), "eoi": ([1, 2], [1.0, 1.0])}, x="epoch", y="loss")


def test_curves_are_drawn_as_they_are_given():
    (axes,) = chart().axes
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    assert drawn == {"dense": [[1, 3], [2, 4]], "EOI": [[1, 1], [2, 1]]}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "loss")


def test_an_inline_chart_takes_its_colours_from_the_page():
    svg = charts.inline_svg(chart(), 'a "chart"')
    assert "var(--eoi)" in svg
    assert "var(--dense)" in svg
    assert not any(light in svg for light, _ in COLOURS.values())
    assert 'aria-label="a &quot;chart&quot;"' in svg


def test_an_inline_chart_asks_for_nothing_and_keeps_its_ids_to_itself():
    one = charts.inline_svg(chart(), "one")
    other = charts.inline_svg(charts.lines({"base": ([1], [1.0])}, x="x", y="y"), "two")
    assert "http" not in one
    ids = re.findall(r'\bid="([^"]*)"', one)
    assert not set(ids) & set(re.findall(r'\bid="([^"]*)"', other))
    assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', one))
    assert {a or b for a, b in re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', one)} <= set(ids)


def test_the_same_chart_is_the_same_text():
    assert charts.inline_svg(chart(), "it") == charts.inline_svg(chart(), "it")


@pytest.mark.parametrize("log", [False, True])
def test_histograms_show_shares_of_all_values_over_common_bins(log):
    values = {"base": [0.0, 0.0, 0.001, 0.001], "eoi": [1.0, 1.0, 1.01, 0.99]}
    (axes,) = charts.histograms(values, x="value", log=log).axes
    # Steps and fills of two sets; what a logarithmic axis cannot show is missing from the sum.
    heights = {}
    for patch in axes.patches:
        heights.setdefault(patch.get_label(), patch.get_path().vertices[:, 1].max())
    assert heights["base"] == pytest.approx(0.5 if log else 1.0)
    assert axes.get_xscale() == ("log" if log else "linear")


def test_a_profile_leaves_a_gap_where_a_logarithm_has_no_value():
    (axes,) = charts.profiles({"base": [1.0, 0.0, 2.0]}, y="norm").axes
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), [1.0, np.nan, 2.0])


def test_no_setting_of_matplotlib_stays_behind(tmp_path):
    before = dict(rcParams)
    charts.save(chart(), tmp_path / "chart.png")
    charts.inline_svg(chart(), "it")
    assert dict(rcParams) == before


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_saved_chart_is_the_same_file_twice(tmp_path, ending):
    for name in ("one", "two"):
        charts.save(chart(), tmp_path / f"{name}.{ending}")
    assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()


def test_a_point_between_two_gaps_is_seen():
    (axes,) = charts.profiles({"base": [1.0, 0.0] * 40}, y="norm").axes
    assert axes.get_lines()[0].get_marker() == "o"
    (axes,) = charts.profiles({"base": [1.0] * 80}, y="norm").axes
    assert axes.get_lines()[0].get_marker() == ""
