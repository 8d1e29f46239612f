import math

import pytest
import torch

from orthosparse.lab.bench.compact import CHECKS, Row, line, run
from orthosparse.lab.bench.compact_entries import sparse_layer

CPU = torch.device("cpu")


@pytest.mark.parametrize("check", sorted(set(CHECKS) - {"others", "configs"}))
def test_every_check_gives_rows(check):
    rows = list(run([check], device=CPU, quick=True))
    assert {row.check for row in rows} == {check}
    assert all(math.isfinite(row.ratio) and row.ratio >= 0 for row in rows)
    assert all(row.case in line(row) for row in rows)


def test_kernels_of_others_that_do_not_run_here_are_rows_that_say_so():
    rows = list(run(["others"], device=CPU, quick=True))
    assert len(rows) == 3
    assert all(math.isnan(row.ratio) and "does not run here" in row.detail for row in rows if row.target is None)


def test_a_verdict_holds_the_ratio_against_its_target():
    assert Row("a", "b", 3.0, 2.0).verdict == ">= 2 ok"
    assert Row("a", "b", 1.0, 2.0).verdict == ">= 2 MISSED"
    assert Row("a", "b", 0.1, 0.15, at_most=True).verdict == "<= 0.15 ok"
    assert Row("a", "b", 0.2, 0.15, at_most=True).verdict == "<= 0.15 MISSED"
    assert Row("a", "b", 0.2, None).verdict == ""


def test_random_layers_have_exactly_their_count(generator):
    layer = sparse_layer(30, 20, 0.9, generator)
    assert layer.units == 540
    assert int(layer.weight_mask.sum()) == 540
