"""Tables of accuracies: which training a cell is, what the tiny version trains, and which figures are drawn."""

from dataclasses import replace

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper._study import DENSE, Accuracies, column, drawn, lines
from orthosparse.lab.paper._tables import Line
from orthosparse.lab.rendering.contents import Figure, Series

COLUMN = column("resnet32", "cifar10", lr=0.2)
LINE = Line("mine", ("mine", "EOI"), fields={"distribution": "snip", "lr": 0.3, "options": {"tap": "random"}})
TABLE = Accuracies(
    "A table",
    [COLUMN],
    [LINE, *lines({"erk": "ERK"}), *DENSE],
    {"density": 0.1, "lr": 0.1, "epochs": 7},
    tiny=["mine", "erk/ai", "dense/orthogonal"],
    small={COLUMN.key: {"epochs": 2}},
    own={("mine", COLUMN.key): {"options": {"center_density": "density"}}, ("erk/base", COLUMN.key): None},
    notes=["a note"],
)


def test_a_cell_has_the_fields_of_the_table_its_column_its_line_and_its_own_and_the_last_one_counts():
    cells = TABLE.cells()
    expected = Training(
        "resnet32",
        "cifar10",
        0.1,
        "snip",
        "eoi",
        lr=0.3,
        epochs=7,
        options={"tap": "random", "center_density": "density"},
    )
    assert cells["mine", COLUMN.key] == expected
    assert cells["erk/ai", COLUMN.key] == Training("resnet32", "cifar10", 0.1, "erk", "ai", lr=0.2, epochs=7)
    assert cells["dense/base", COLUMN.key] == Training("resnet32", "cifar10", lr=0.2, epochs=7, dense_init="default")
    assert cells["erk/base", COLUMN.key] is None


def test_experiments_are_those_of_all_tables_once_each():
    below = replace(TABLE, fields={"density": 0.2}, lines=[LINE, *DENSE])
    both = replace(TABLE, below=[below, TABLE])
    assert both.experiments() == [*TABLE.experiments(), *below.experiments()]
    assert len(both.render([]).tables) == 3
    assert None not in both.experiments()


def test_the_tiny_version_has_its_lines_and_columns_and_starts_of_the_same_kind():
    found = TABLE.experiments(smoke=True)
    assert [(each.model, each.data, each.recipe.epochs) for each in found] == [("mlp", "digits", 2)] * 3
    assert [each.density for each in found] == [0.4, 0.4, 1.0]
    mine, ai, _ = found
    assert (mine.distribution, mine.scheme) == ("snip", "eoi")
    assert mine.options == {"tap": "random", "center_density": "density"}
    assert ai.options == {"iterations": 20}
    assert replace(TABLE, small={}).experiments(smoke=True) == []


@pytest.mark.parametrize("across", [False, True])
def test_columns_are_trained_in_one_setting_where_they_are_compared(across):
    columns = [column("resnet32", "cifar10"), column("resnet56", "cifar10")]
    table = Accuracies("t", columns, lines({"erk": "ERK"}, {"eoi": "EOI"}), {"density": 0.1}, across=across)
    accuracies = {("resnet32", "tf32"): 0.5, ("resnet32", "bf16"): 0.4, ("resnet56", "bf16"): 0.3}
    rows = [
        row_of(Training(model, "cifar10", 0.1, precision=precision), test_accuracy=accuracy)
        for (model, precision), accuracy in accuracies.items()
    ]
    (cells,) = table.render(rows).tables[0].cells
    assert [round(cell.ours[0]) for cell in cells] == [40 if across else 50, 30]


def test_curves_without_a_point_and_figures_without_a_curve_are_not_drawn():
    full, empty = Series("a", [1], [2.0]), Series("b", [], [])
    figures = [Figure("one", "x", "y", [empty, full]), Figure("two", "x", "y", [empty])]
    assert [(figure.title, figure.series) for figure in drawn(figures)] == [("one", (full,))]
