"""Charts as SVG: points that say their values at the right place, the page's colours, nothing left behind."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from matplotlib import rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg

from orthosparse.lab.rendering.charts import draw, draw_grid, save, svg_of
from orthosparse.lab.rendering.contents import Figure, Series
from orthosparse.lab.rendering.theme import COLOURS


def figure(ys, **more):
    curve = Series("one <two>", range(1, len(ys) + 1), ys, "eoi", method='ERK|"EOI"')
    return Figure("a & b", "epoch", "loss", [curve], **more)


def parsed(svg):
    return ET.fromstring(svg.replace("xlink:href", "href"))


def points(svg):
    return [each for each in parsed(svg).iter("circle") if each.get("class") == "hover"]


def titles(svg):
    return [each.find("title").text for each in points(svg)]


def test_every_point_says_series_axes_and_values():
    assert titles(svg_of(figure([1.0, 2.5]))) == ["one <two>: epoch 1, loss 1", "one <two>: epoch 2, loss 2.5"]


def test_a_series_is_a_group_of_its_method():
    root = parsed(svg_of(figure([1.0, 2.5])))
    groups = [each for each in root.iter("g") if each.get("data-method") == 'ERK|"EOI"']
    assert len(groups) == 2  # the curve, and the points under the pointer
    several = Figure("t", "x", "y", [Series(name, [1, 2], [1, 2], "eoi", method=name) for name in ("A", "B")])
    methods = [each.get("data-method") for each in parsed(svg_of(several)).iter("g")]
    assert methods.count("A") == methods.count("B") == 4  # line and text of the legend too


@pytest.mark.parametrize("log_y", [False, True])
def test_points_lie_on_the_curve_that_is_drawn(log_y):
    svg = svg_of(figure([0.01, 1.0, 100.0], log_y=log_y))
    found = [(float(each.get("cx")), float(each.get("cy"))) for each in points(svg)]
    (curve,) = re.findall(r'<g data-method=[^>]*> <path d="M ([^"]*)"', svg)
    drawn = [tuple(map(float, pair.split())) for pair in curve.replace("L", "").split("  ")]
    drawn = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", curve)]
    assert found == [pytest.approx(place, abs=0.15) for place in drawn]
    assert [y for _, y in found] == sorted((y for _, y in found), reverse=True)


def test_what_an_axis_cannot_show_is_a_gap():
    assert len(titles(svg_of(figure([1.0, None, float("nan"), 0.0, 2.0], log_y=True)))) == 2
    assert titles(svg_of(figure([0.0]))) == ["one <two>: epoch 1, loss 0"]


def test_a_point_between_two_gaps_is_seen():
    assert draw(figure([1.0, None] * 40)).axes[0].get_lines()[0].get_marker() == "o"
    assert draw(figure([1.0] * 80)).axes[0].get_lines()[0].get_marker() == ""


def test_whole_numbers_have_whole_ticks():
    axes = draw(figure([0.1 * epoch for epoch in range(8)])).axes[0]
    assert all(float(tick).is_integer() for tick in axes.get_xticks())


@pytest.mark.parametrize("xs", [[2.0**-each for each in range(1, 7)], [2.0**each for each in range(4, 12)], [0.1]])
def test_names_of_ticks_do_not_run_into_each_other(xs):
    canvas = draw(Figure("t", "density", "seconds", [Series("EOI", xs, xs, "eoi")], log_x=True, log_y=True))
    axes, renderer = canvas.axes[0], FigureCanvasAgg(canvas).get_renderer()
    canvas.draw(renderer)
    low, high = axes.get_xlim()
    labels = [label for which in (True, False) for label in axes.get_xticklabels(minor=which) if label.get_text()]
    boxes = sorted(
        (label.get_window_extent(renderer) for label in labels if low <= label.get_position()[0] <= high),
        key=lambda box: box.x0,
    )
    assert len(boxes) >= 3
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_long_curves_answer_at_some_points_only():
    assert len(titles(svg_of(figure([float(i) for i in range(1000)])))) <= 60


def test_points_alone_stand_over_names_with_their_deviations():
    alone = Series("EOI", [0, 1.1], [90.0, 91.0], "eoi", points="hollow", deviations=[0.25, None])
    shown = Figure("t", "", "accuracy", [alone], names=("static", "RigL\nfrom <EOI>"))
    assert titles(svg_of(shown)) == ["EOI: static, accuracy 90 ± 0.25", "EOI: RigL from <EOI>, accuracy 91"]
    axes = draw(shown).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["static", "RigL\nfrom <EOI>"]
    (whiskers,) = axes.collections
    assert whiskers.get_segments()[0][:, 1].tolist() == [89.75, 90.25]


def test_values_beyond_the_axis_are_told_in_words():
    shown = figure([1.0, 2.0, 7.25], top=2.5)
    axes = draw(shown).axes[0]
    assert axes.get_ylim()[1] == 2.5
    assert axes.get_ylim()[0] > 0
    assert [text.get_text() for text in axes.texts] == ["values up to 7.25 are beyond the axis"]
    assert len(titles(svg_of(shown))) == 2
    assert not draw(figure([1.0, 2.0], top=2.5)).axes[0].texts


def test_points_far_from_the_bottom_of_the_axis_are_whole_at_its_top():
    bottom, top = draw(figure([10.0, 10.1], bottom=0)).axes[0].get_ylim()
    assert bottom == 0
    assert top > 10.5


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_the_legend_of_a_grid_lies_within_it(columns):
    entries = [Series(f"hard tanh {index}", [1], [1.0], "eoi") for index in range(6)]
    canvas = draw_grid([[Figure("t", "x", "y", entries) for _ in range(columns)]])
    FigureCanvasAgg(canvas).draw()
    box = canvas.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= canvas.bbox.x1


def test_histograms_are_filled_steps():
    bars = Series("EOI", [0, 1, 2], [0.25, 0.75, 0.0], "eoi", bins=True)
    axes = draw(Figure("t", "x", "share", [bars])).axes[0]
    assert axes.get_lines()[0].get_drawstyle() == "steps-post"
    assert len(axes.collections) == 1


def test_an_inline_chart_takes_its_colours_from_the_page():
    svg = svg_of(figure([1.0, 2.0]))
    assert "var(--eoi)" in svg
    assert not any(light in svg for light, _ in COLOURS.values())
    assert 'aria-label="a &amp; b"' in svg


def test_an_inline_chart_asks_for_nothing_and_keeps_its_ids_to_itself():
    one, other = svg_of(figure([1.0, 2.0])), svg_of(figure([2.0, 1.0]))
    assert "http" not in one
    ids = re.findall(r'\bid="([^"]*)"', one)
    assert not set(ids) & set(re.findall(r'\bid="([^"]*)"', other))
    used = {a or b for a, b in re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', one)}
    assert used
    assert used <= set(ids)


def test_the_same_chart_is_the_same_text_and_the_same_file(tmp_path):
    assert svg_of(figure([1.0, 2.0])) == svg_of(figure([1.0, 2.0]))
    for ending in ("png", "svg"):
        for name in ("one", "two"):
            save(draw(figure([1.0, 2.0])), tmp_path / f"{name}.{ending}")
        assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()


def test_a_chart_that_does_not_fit_leaves_the_old_one(tmp_path, small_disk):
    path = tmp_path / "chart.png"
    save(draw(figure([1.0, 2.0])), path)
    before = path.read_bytes()
    with small_disk(2**10), pytest.raises(OSError, match=r"chart\.png"):
        save(draw(figure([2.0, 1.0])), path)
    assert path.read_bytes() == before


def test_a_grid_shares_its_axes_and_has_one_legend():
    canvas = draw_grid([[figure([1.0, 2.0]), figure([1.0, 9.0])], [figure([3.0]), figure([4.0])]])
    first, second, third, fourth = canvas.axes
    assert first.get_ylim() == second.get_ylim() != third.get_ylim()
    assert (first.get_title(), third.get_title()) == ("a & b", "")
    assert (first.get_ylabel(), second.get_ylabel(), first.get_xlabel(), fourth.get_xlabel()) == (
        "loss",
        "",
        "",
        "epoch",
    )
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == ["one <two>"]


def test_no_setting_of_matplotlib_stays_behind(tmp_path):
    before = dict(rcParams)
    save(draw(figure([1.0])), tmp_path / "chart.png")
    svg_of(figure([1.0]))
    assert dict(rcParams) == before
