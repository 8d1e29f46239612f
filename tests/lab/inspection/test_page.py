from orthosparse.lab.inspection import page_of
from orthosparse.lab.rendering import html_of


def test_the_page_shows_spectra_orthogonality_and_gradients_of_every_start(found):
    page = page_of("Inspection of it", "A lead.", found, "Advice.", ["foot"])
    starts, layers = page.sections
    assert [chart.title for chart in starts.charts] == [
        "Singular values",
        "Distance from orthogonality",
        "Gradient norm",
    ]
    assert all(name in chart.svg for chart in starts.charts for name in ("dense", "base", "EOI"))
    assert len(layers.tables[0].rows) == 7
    assert "all of 4 inputs" in starts.charts[0].caption
    assert "Advice." in html_of(page)
