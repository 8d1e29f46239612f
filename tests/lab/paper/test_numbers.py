"""The paper's numbers: shapes, and cells read off the paper by eye."""

import pytest

from orthosparse.lab.paper.numbers import number, tables


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
    table = tables()[item]
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
    assert number(item, line, column) == expected


def test_relu_is_the_same_in_both_tables():
    for line, cells in tables()["activations"].items():
        for model in ("resnet32", "vgg16c"):
            assert cells[f"{model}/relu"] == tables()["contemporary"][line][f"{model}/cifar10"]
