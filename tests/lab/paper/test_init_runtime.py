"""The seconds that AI and EOI add, seed by seed."""

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.experiments.init_runtime import InitRuntime
from orthosparse.lab.paper import init_runtime


def test_differences_are_taken_between_rows_of_one_seed():
    base = InitRuntime("resnet32", "cifar10", "erk", "base")
    eoi = InitRuntime("resnet32", "cifar10", "erk", "eoi")
    rows = [
        row_of(base, 1, seconds=10.0, sparsify_seconds=0.5),
        row_of(base, 2, seconds=20.0, sparsify_seconds=0.5),
        row_of(eoi, 2, seconds=21.0, sparsify_seconds=0.75),
        row_of(eoi, 3, seconds=99.0, sparsify_seconds=0.25),
    ]
    added, alone = init_runtime.render(rows).tables
    cells = {line.key: cells[0] for line, cells in zip(added.lines, added.cells, strict=True)}
    assert cells["erk/base"].ours[0] == pytest.approx(15)
    assert cells["erk/eoi"].ours == (1.0, None)
    assert cells["erk/eoi"].paper == (0.40, 2.38)
    assert cells["erk/ai"].ours is None
    assert alone.cells[2][0].ours[0] == pytest.approx(0.5)
