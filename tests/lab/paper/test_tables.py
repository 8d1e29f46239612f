"""The paper's numbers, read off the paper by eye, and cells by hand: means, deviations, differences, marks."""

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import lines
from orthosparse.lab.paper._tables import Column, Line, Measurement, paper_number, paper_tables, table_of

COLUMN = Column("resnet32/cifar10", "ResNet32")
EMPTY = {(line.key, COLUMN.key): Measurement() for line in lines()}


def test_cells_hold_mean_deviation_seeds_and_difference():
    measured = EMPTY | {("erk/eoi", COLUMN.key): Measurement([89.0, 91.0], "a note")}
    table = table_of("title", [COLUMN], lines(), measured, item="contemporary")
    by_line = {line.key: cells[0] for line, cells in zip(table.lines, table.cells, strict=True)}
    eoi, base = by_line["erk/eoi"], by_line["erk/base"]
    assert eoi.ours == (90.0, pytest.approx(2**0.5))
    assert (eoi.seeds, eoi.note, eoi.paper) == (2, "a note", (89.79, 0.38))
    assert eoi.difference == pytest.approx(0.21)
    assert eoi.error == pytest.approx((2 / 2 + 0.38**2 / 5) ** 0.5)  # variance of a mean of two, and of five
    assert (base.ours, base.seeds, base.difference) == (None, 0, None)
    assert base.paper == (89.49, 0.27)


def test_marks_are_those_of_the_paper_for_resnet32():
    table = table_of("title", [COLUMN], lines(), EMPTY, item="contemporary")
    marks = {line.key: cells[0].paper_mark for line, cells in zip(table.lines, table.cells, strict=True)}
    assert {key for key, mark in marks.items() if mark} == {
        f"{name}/eoi" for name in ("erk", "grasp", "snip", "synflow", "uniform")
    }
    assert [key for key, mark in marks.items() if mark == "column"] == ["erk/eoi"]


def test_where_the_paper_marks_a_smaller_mean_the_larger_one_is_marked():
    column = Column("efficientnet_b0/tiny_imagenet", "EfficientNet")
    table = table_of("title", [column], lines(), EMPTY, item="contemporary")
    marks = {line.key: cells[0].paper_mark for line, cells in zip(table.lines, table.cells, strict=True)}
    assert (marks["synflow/base"], marks["synflow/ai"]) == ("column", "")


def test_ties_share_the_mark_dense_lines_have_none_and_nothing_is_best_of_a_block_alone():
    asked = [
        Line("a", ("a",), block="x"),
        Line("b", ("b",), block="x"),
        Line("c", ("c",), block="y"),
        Line("d", ("d",), block="x", ranked=False),
    ]
    values = {"a": 2.0, "b": 2.0, "c": 5.0, "d": 9.0}
    found = {(key, "k"): Measurement([value]) for key, value in values.items()}
    table = table_of("title", [Column("k", "k")], asked, found)
    assert [cells[0].our_mark for cells in table.cells] == ["block", "block", "column", ""]
    lowest = table_of("title", [Column("k", "k")], asked, found, better=min)
    assert [cells[0].our_mark for cells in lowest.cells] == ["column", "column", "", ""]


@pytest.mark.parametrize(("digits", "marks"), [(3, ["column", ""]), (2, ["column", "column"])])
def test_only_means_that_are_shown_equal_share_a_mark(digits, marks):
    measured = {("erk/base", COLUMN.key): Measurement([0.277]), ("erk/ai", COLUMN.key): Measurement([0.284])}
    table = table_of("title", [COLUMN], lines({"erk": "ERK"})[:2], measured, better=min, digits=digits)
    assert [cells[0].our_mark for cells in table.cells] == marks


def test_nothing_is_best_of_trainings_of_different_lengths():
    asked = [Line(key, (key,), block="x" if key in "ab" else "y") for key in "abcd"]
    found = {
        ("a", "k"): Measurement([9.0]),
        ("b", "k"): Measurement([8.0], setting="2 epochs"),
        ("c", "k"): Measurement([5.0], setting="2 epochs"),
        ("d", "k"): Measurement([6.0], setting="2 epochs"),
    }
    table = table_of("title", [Column("k", "k")], asked, found)
    assert [cells[0].our_mark for cells in table.cells] == ["", "", "", "block"]


def marks_of(rows):
    """The marks and notes of three starts, given rows by (start, precision, accuracy)."""

    made = [
        row_of(Training("resnet32", "cifar10", 0.1, scheme=start, precision=precision), test_accuracy=accuracy)
        for start, precision, accuracy in rows
    ]
    asked = [Line(key, (key,), block="x") for key in ("base", "ai", "eoi")]
    cells = {(line.key, COLUMN.key): Training("resnet32", "cifar10", 0.1, scheme=line.key) for line in asked}
    table = table_of("title", [COLUMN], asked, RowIndex(made).accuracies(cells))
    return [(cells[0].our_mark, cells[0].setting) for cells in table.cells]


def test_precisions_are_compared_only_once_all_have_the_same():
    low = "200 epochs in bf16 instead of tf32"
    rows = [("base", None, 0.5), ("ai", None, 0.6), ("eoi", "bf16", 0.9)]
    assert marks_of(rows) == [("", ""), ("", ""), ("", low)]
    rows += [("base", "bf16", 0.8)]
    assert marks_of(rows) == [("", ""), ("", ""), ("", low)]  # two of each: those asked for
    rows += [("ai", "bf16", 0.7)]
    assert marks_of(rows) == [("", low), ("", low), ("column", low)]
    rows += [("eoi", None, 0.1)]
    assert marks_of(rows) == [("", ""), ("column", ""), ("", "")]


def test_a_cell_that_does_not_exist_keeps_the_papers_number():
    table = table_of("title", [COLUMN], lines(), {}, item="contemporary")
    cell = table.cells[0][0]
    assert not cell.exists
    assert cell.paper == (89.49, 0.27)


def test_trainings_of_other_lengths_have_no_difference():
    measured = {("erk/eoi", COLUMN.key): Measurement([50.0], "8 of 200 epochs", setting="8 of 200 epochs", whole=False)}
    table = table_of("title", [COLUMN], lines(), measured, item="contemporary")
    (cell,) = [cells[0] for cells in table.cells if cells[0].ours]
    assert (cell.ours, cell.difference, cell.error) == ((50.0, None), None, None)


def test_a_mean_without_the_seeds_that_diverged_is_not_compared_with_the_papers():
    training = Training("resnet32", "cifar10", 0.1)
    rows = [row_of(training, 1, test_accuracy=0.9), row_of(training, 2, diverged=True)]
    cells = {
        ("erk/eoi", COLUMN.key): training,
        ("erk/base", COLUMN.key): Training("resnet32", "cifar10", 0.1, "erk", "base"),
    }
    rows += [row_of(cells["erk/base", COLUMN.key], 1, test_accuracy=0.8)]
    table = table_of("title", [COLUMN], lines(), RowIndex(rows).accuracies(cells), item="contemporary")
    base, eoi = (
        next(cells[0] for line, cells in zip(table.lines, table.cells, strict=True) if line.key == key)
        for key in ("erk/base", "erk/eoi")
    )
    assert (eoi.ours, eoi.note, eoi.difference, eoi.our_mark) == ((90.0, None), "1 of 2 diverged", None, "")
    assert base.our_mark == ""


@pytest.mark.parametrize(
    ("item", "lines", "cells"),
    [
        ("deep_networks", 15, 30),
        ("contemporary", 17, 102),
        ("contemporary_5", 17, 68),
        ("activations", 15, 114),
        ("init_runtime", 15, 75),
        ("angles", 3, 3),
        ("parameter_counts", 7, 7),
    ],
)
def test_tables_have_the_papers_shape(item, lines, cells):
    table = paper_tables()[item]
    assert len(table) == lines
    assert sum(map(len, table.values())) == cells


@pytest.mark.parametrize(
    ("item", "line", "column", "expected"),
    [
        ("deep_networks", "snip/eoi", "cnn1000/cifar10", (46.59, 0.11)),
        ("deep_networks", "sao/eoi", "mlp1000/mnist", (97.43, 0.05)),
        ("contemporary", "grasp/base", "vgg16c/cifar10", (33.22, 23.11)),
        ("contemporary", "dense/orthogonal", "resnet110/cifar100", (70.93, 1.63)),
        ("contemporary", "uniform/eoi", "efficientnet_b0/tiny_imagenet", (24.51, 13.25)),
        ("contemporary_5", "snip/eoi", "resnet110/cifar10", (25.90, 35.54)),
        ("activations", "erk/ai", "resnet32/tanh", (88.30, 0.18)),
        ("activations", "synflow/base", "vgg16c/selu", (91.84, 0.20)),
        ("activations", "synflow/base", "vgg16c/tanh", None),
        ("init_runtime", "synflow/eoi", "resnet56/cifar10", (-14.43, 2.36)),
        ("angles", "large", "resnet32/cifar10", (89.87, 0.22)),
        ("parameter_counts", "cnn1000/cifar10", "kept", (18e6, None)),
        ("contemporary", "erk/eoi", "resnet9000/cifar10", None),
    ],
)
def test_cells_are_the_papers(item, line, column, expected):
    assert paper_number(item, line, column) == expected


def test_relu_is_the_same_in_both_paper_tables():
    for line, cells in paper_tables()["activations"].items():
        for model in ("resnet32", "vgg16c"):
            assert cells[f"{model}/relu"] == paper_tables()["contemporary"][line][f"{model}/cifar10"]
