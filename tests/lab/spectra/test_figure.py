import pytest

from orthosparse.lab.spectra import experiments
from orthosparse.lab.spectra.figure import render


@pytest.fixture
def rows():
    asked = [e for e in experiments() if e.density in (0.1, 1.0) and e.distribution in ("erk", "synflow")]
    values = {"base": 0.1, "ai": 0.5, "eoi": 1.0}
    return [
        {
            "fields": e.described(),
            "seed": seed,
            "metrics": {"mean": values[e.scheme] * seed, "max": 1.5 * values[e.scheme]},
        }
        for e in asked
        for seed in (0.5, 1.5)
    ]


def test_means_stand_above_maxima_and_distributions_side_by_side(rows, tmp_path):
    figure = render(rows, tmp_path / "figure.svg")
    erk, synflow, erk_max, synflow_max = figure.axes
    assert [axes.get_title() for axes in (erk, synflow)] == ["ERK", "SynFlow"]
    assert (erk.get_ylabel(), erk_max.get_ylabel()) == ("mean singular value", "largest singular value")
    assert len([line for line in erk.get_lines() if len(line.get_xdata())]) == 12
    assert len([line for line in synflow_max.get_lines() if len(line.get_xdata())]) == 6
    assert (tmp_path / "figure.svg").stat().st_size > 1000


def test_points_lie_at_sparsity_and_average_the_seeds(rows, tmp_path):
    erk = render(rows, tmp_path / "figure.svg").axes[0]
    base, ai, eoi = (line.get_xydata().tolist() for line in erk.get_lines()[:3])
    assert eoi == [pytest.approx([0.9, 1.0]), pytest.approx([0.0, 1.0])]
    assert base[0] == pytest.approx([0.9, 0.1])
    assert ai[0] == pytest.approx([0.9, 0.5])


def test_what_leaves_the_axes_is_told_in_words(rows, tmp_path):
    rows[0]["metrics"]["mean"] = 7.25
    erk, synflow, *_ = render(rows, tmp_path / "figure.svg").axes
    assert [text.get_text() for text in erk.texts] == ["EOI, base: up to 7.25"]
    assert not synflow.texts or "7.25" not in synflow.texts[0].get_text()


def test_no_rows_are_refused(tmp_path):
    with pytest.raises(ValueError, match="rows: expected at least one; got none"):
        render([], tmp_path / "figure.png")
