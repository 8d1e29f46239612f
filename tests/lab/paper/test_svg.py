"""Figures and pictures as SVG."""

import xml.etree.ElementTree as ET

import pytest

from orthosparse.lab.paper._rendered import Figure, Picture, Series
from orthosparse.lab.paper._svg import figure_svg, picture_svg


def figure(ys, **more):
    return Figure("a & b", "x", "y", (Series("one <two>", range(1, len(ys) + 1), ys, "eoi", method="ERK"),), **more)


def titles(svg):
    return [element.text for element in ET.fromstring(svg).iter("title")]


def test_every_point_says_its_values():
    assert titles(figure_svg(figure([1.0, 2.5]))) == ["one <two>", "one <two>: 1, 1", "one <two>: 2, 2.5"]


@pytest.mark.parametrize("log_y", [False, True])
def test_higher_values_are_drawn_higher_and_inside(log_y):
    root = ET.fromstring(figure_svg(figure([0.01, 1.0, 100.0], log_y=log_y)))
    heights = [float(each.get("cy")) for each in root.iter("circle") if each.get("class") == "hover"]
    assert heights == sorted(heights, reverse=True)
    assert all(0 < height < 260 for height in heights)
    gaps = [heights[0] - heights[1], heights[1] - heights[2]]
    assert (abs(gaps[0] - gaps[1]) < 1) is log_y


def test_what_an_axis_cannot_show_is_left_out():
    assert len(titles(figure_svg(figure([1.0, None, float("nan"), 0.0, 2.0], log_y=True)))) == 3
    assert figure_svg(figure([None])) == ""


def test_one_value_alone_has_axes_too():
    assert titles(figure_svg(figure([0.0]))) == ["one <two>: 1, 0"]


def test_whole_numbers_have_whole_ticks():
    root = ET.fromstring(figure_svg(figure([0.1 * epoch for epoch in range(8)])))
    below = [each.text for each in root.iter("text") if each.get("text-anchor") == "middle"]
    assert {"2", "4", "6", "8"} <= set(below)
    assert not any("." in text for text in below)


def test_long_curves_answer_at_some_points_only():
    assert len(titles(figure_svg(figure([float(i) for i in range(1000)])))) <= 61


def test_pictures_have_a_square_for_every_active_entry():
    svg = picture_svg(Picture("mask", ((1, 0, 2), (1, 1, 0)), "caption", every=1))
    paths = {each.get("class"): each.get("d") for each in ET.fromstring(svg).iter("path")}
    assert paths["full"].count("h1v1h-1z") == 3
    assert paths["free"] == "M2 0h1v1h-1z"
    assert paths["rules"] == "M1 0v2M2 0v2M0 1h3"


def test_points_alone_stand_over_names_with_their_deviations():
    points = Series("EOI", [0, 1.1], [90.0, 91.0], "eoi", points="hollow", deviations=[0.25, None])
    svg = figure_svg(Figure("t", "", "accuracy", (points,), names=("static", "RigL\nfrom <EOI>")))
    assert titles(svg) == ["EOI: static, 90 (0.25)", "EOI: RigL from <EOI>, 91"]
    root = ET.fromstring(svg)
    assert [each.text for each in root.iter("text") if each.get("class") == "name"] == ["static", "RigL", "from <EOI>"]
    (whisker,) = [each.get("d") for each in root.iter("path") if each.get("class") == "curve"]
    below, above = map(float, whisker.partition(" ")[2].split("V"))
    dots = [each for each in root.iter("circle") if each.get("class") == "hollow"]
    assert float(dots[0].get("cy")) == pytest.approx((below + above) / 2, abs=0.1)
    assert 0 < above < below < 220
    assert 66 < float(dots[0].get("cx")) < float(dots[1].get("cx")) < 428
