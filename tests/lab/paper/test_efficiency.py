"""The figure of efficiency, by hand."""

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.experiments.efficiency import Efficiency
from orthosparse.lab.paper import efficiency


def test_times_ratios_and_the_cost_model_stand_where_they_belong():
    rows = [
        row_of(Efficiency("eoi", 16, 0.0625), 1, seconds=0.001, orthogonality=1e-7),
        row_of(Efficiency("eoi", 16, 0.0625), 2, seconds=0.003, orthogonality=1e-7),
        row_of(Efficiency("ai-plain", 16, 0.0625), 1, seconds=8.0, orthogonality=2.0),
        row_of(Efficiency("released-cost-model", 16, 0.0625), 1, modelled_seconds=0.001),
    ]
    rendered = efficiency.render(rows)
    by_size = rendered.tables[0]
    first = {line.key: cells[0] for line, cells in zip(by_size.lines, by_size.cells, strict=True)}
    assert first["eoi"].ours == (pytest.approx(2.0), pytest.approx(2**0.5))
    assert first["ai-plain"].ours == (8000.0, None)
    assert first["sao"].ours is None
    assert first["released-cost-model"].ours == (1.0, None)
    assert "AI takes 4,000.0 to 4,000.0 times as long as EOI; longer in 1 of the 1 measured points" in rendered.notes[0]
    assert "longer in 0 of the 1" in rendered.notes[1]
    orthogonality, time = rendered.figures[:2]
    assert [series.label for series in orthogonality.series] == ["EOI", "AI"]
    assert [(list(series.xs), list(series.ys)) for series in time.series if series.label == "AI"] == [([16.0], [8.0])]


def test_a_cost_model_is_not_the_fastest_method():
    rows = [row_of(Efficiency(method, 16, 0.0625), seconds=0.001) for method in ("eoi", "sao")]
    rows += [row_of(Efficiency("released-cost-model", 16, 0.0625), modelled_seconds=0.0)]  # the identity: no rotation
    table = efficiency.render(rows).tables[0]
    marks = {line.key: cells[0].our_mark for line, cells in zip(table.lines, table.cells, strict=True)}
    assert marks["released-cost-model"] == ""
    assert marks["eoi"] == marks["sao"] == "column"


def test_every_size_and_density_of_the_paper_is_there():
    places = {(each.size, each.density) for each in efficiency.experiments()}
    assert {size for size, density in places if density == 0.0625} == {16, 32, 64, 128, 256, 512, 1024, 2048}
    assert {method.method for method in efficiency.experiments()} == {
        "eoi",
        "sao",
        "ai",
        "ai-plain",
        "released-cost-model",
    }


def test_large_matrices_are_given_fewer_iterations_of_ai_and_the_page_says_so():
    given = {each.size: each.iterations for each in efficiency.experiments() if each.method == "ai-plain"}
    assert given[512] is None
    assert given[1024] == given[2048] == 200
    assert any("Above n = 512 both were given 200 iterations" in note for note in efficiency.render([]).notes)


def test_times_of_few_iterations_are_told_apart():
    rows = [row_of(Efficiency("eoi", size, 0.0625), seconds=0.001) for size in (16, 1024)]
    rows += [
        row_of(Efficiency("ai-plain", 16, 0.0625), seconds=8.0),
        row_of(Efficiency("ai-plain", 1024, 0.0625, iterations=200), seconds=4.0),
    ]
    rendered = efficiency.render(rows)
    said, _, where = rendered.notes[0].partition("; ")
    assert (
        said == "AI takes 8,000.0 to 8,000.0 times as long as EOI, 4,000.0 to 4,000.0 times as long at 200 iterations"
    )
    assert where == "longer in 2 of the 2 measured points (of 14)."
    table = rendered.tables[0]
    notes = {
        (line.key, column.key): cell.note
        for line, cells in zip(table.lines, table.cells, strict=True)
        for column, cell in zip(table.columns, cells, strict=True)
        if cell.note
    }
    assert notes == {("ai-plain", "n = 1024"): "200 iterations instead of 10,000"}
