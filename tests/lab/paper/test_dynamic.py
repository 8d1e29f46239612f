"""The figure of masks that stay and that move."""

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper import dynamic


def test_every_method_stands_over_its_name_in_the_colour_of_its_start():
    moving = Training("resnet32", "cifar10", 0.1, scheme="eoi", dynamic="rigl")
    still = Training("resnet32", "cifar10", 0.1, scheme="base")
    (figure,) = dynamic.render(
        [row_of(moving, 1, test_accuracy=0.90), row_of(moving, 2, test_accuracy=0.92), row_of(still, test_accuracy=0.8)]
    ).figures
    assert figure.title == "ResNet32 (CIFAR-10)"
    found = {series.label: (figure.names[series.xs[0]], series.role, series.ys[0]) for series in figure.series}
    assert found == {
        "ERK-Base": ("ERK-Base\nstatic", "base", pytest.approx(80)),
        "EOI + RigL": ("EOI + RigL\ndynamic", "eoi", pytest.approx(91)),
    }
    assert figure.series[1].deviations == [pytest.approx(2**0.5)]
    assert dynamic.render([]).figures == []


def test_a_method_that_was_trained_for_fewer_epochs_does_not_stand_beside_the_others():
    base, eoi = (Training("resnet32", "cifar10", 0.1, scheme=scheme) for scheme in ("base", "eoi"))
    short = Training("resnet32", "cifar10", 0.1, scheme="base", dynamic="set", epochs=20)
    rows = [row_of(base, test_accuracy=0.8), row_of(eoi, test_accuracy=0.9), row_of(short, test_accuracy=0.5)]
    (figure,) = dynamic.render(rows).figures
    assert [series.label for series in figure.series] == ["ERK-Base", "ERK-EOI"]
