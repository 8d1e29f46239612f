import json
import logging
import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.experiments.expected_density import ExpectedDensity
from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.sweep.pairs import Pair, Task, attempt, perform

PAIRS = tuple(Pair(Training("mlp", "digits", density=0.5), seed) for seed in (1, 2))


@pytest.mark.parametrize("seed", [2**63, -(2**63), 99999999999999999999999])
def test_a_seed_that_no_store_can_hold_is_refused(seed):
    with pytest.raises(ValueError, match=f"seed: expected a whole number below 2\\*\\*63; got {seed}"):
        Pair(MaskPicture("eoi"), seed)


def test_a_task_of_one_pair_has_its_folder_and_a_stack_one_that_no_order_changes():
    assert Task(PAIRS[:1], PAIRS[:1]).folder == PAIRS[0].folder
    stacks = {Task(pairs, pairs, stacked=True).folder for pairs in (PAIRS, PAIRS[::-1])}
    assert len(stacks) == 1
    assert stacks.isdisjoint({Task(PAIRS[:1], PAIRS[:1], stacked=True).folder, PAIRS[0].folder})


def test_a_task_is_called_by_its_first_pair():
    assert str(Task(PAIRS[:1], PAIRS[:1])) == str(PAIRS[0])
    assert str(Task(PAIRS, PAIRS, stacked=True)) == f"{PAIRS[0]} and 1 more"


def row_of(pair, **options):
    (row,) = perform(Task((pair,), (pair,)), **options)
    return row


@dataclass(frozen=True, eq=False)
class Odd(Experiment):
    kind: ClassVar[str] = "odd"

    def run(self, seed, *, root=None, out=None, device="auto", progress=None):
        logging.getLogger("orthosparse.sparsify").warning("raised: %s", "fc1")
        logging.getLogger("orthosparse.sparsify").warning("raised: %s", "fc1")
        curves = {"loss": [0.123456789, math.inf, 1], "mask": [0, 1]}
        return {"accuracy": math.nan, "exact": 1 / 3, "out": str(out), "device": device, "curves": curves}


def test_a_row_says_what_was_asked_what_came_of_it_and_where_it_comes_from():
    pair = Pair(ExpectedDensity(20, 30), 5)
    row = row_of(pair)
    assert row["key"] == '{"kind":"expected_density","rotations":30,"size":20}'
    assert (row["seed"], row["kind"], row["fields"]) == (5, "expected_density", {"size": 20, "rotations": 30})
    assert len(row["curves"]["measured"]) == 31
    assert row["versions"].keys() >= {"python", "torch", "orthosparse"}
    assert row["device"].startswith("cpu")
    assert row["commit"] is None or len(row["commit"].split("+")[0]) >= 7
    assert row["wall_s"] > 0
    assert row["time"].endswith("+00:00")
    assert json.loads(json.dumps(row, allow_nan=False)) == row


def test_the_same_pair_gives_the_same_metrics_and_another_seed_others():
    rows = [row_of(Pair(ExpectedDensity(20, 30), seed)) for seed in (1, 1, 2)]
    assert rows[0]["metrics"] == rows[1]["metrics"] != rows[2]["metrics"]


def test_numbers_that_are_not_finite_are_null_and_curves_are_short():
    row = row_of(Pair(Odd(), 1))
    assert row["metrics"]["accuracy"] is None
    assert row["metrics"]["exact"] == 1 / 3
    assert row["curves"] == {"loss": [0.123457, None, 1], "mask": [0, 1]}


def test_what_the_library_warns_of_is_kept_once():
    assert row_of(Pair(Odd(), 1))["metrics"]["warnings"] == "raised: fc1"


def test_a_pair_has_a_folder_of_its_own_and_without_one_keeps_nothing(tmp_path):
    pairs = [Pair(Odd(), 1), Pair(Odd(), 2), Pair(ExpectedDensity(), 1)]
    assert len({pair.folder for pair in pairs}) == 3
    assert row_of(pairs[0], runs=tmp_path)["metrics"]["out"] == str(tmp_path / pairs[0].folder)
    assert row_of(pairs[0])["metrics"]["out"] == "None"


def test_a_kind_that_takes_no_gpu_is_given_the_processor():
    assert row_of(Pair(Odd(), 1), device="auto")["metrics"]["device"] == "cpu"


def test_only_trainings_are_compiled_and_their_rows_say_so(monkeypatch):
    compiled, compile_ = [], torch.compile

    def as_it_is(network, **how):
        compiled.append(network)
        return compile_(network, backend="eager", **how)

    monkeypatch.setattr(torch, "compile", as_it_is)
    small = Training("mlp", "digits", model_options={"depth": 3, "width": 16}, epochs=1)
    rows = [row_of(Pair(each, 1), device="cpu", compiled=True) for each in (small, ExpectedDensity(20, 30))]
    plain = row_of(Pair(small, 1), device="cpu")
    assert len(compiled) == 1
    assert rows[0]["metrics"]["compiled"] is True
    assert "compiled" not in rows[1]["metrics"] | plain["metrics"]
    assert rows[0]["metrics"]["test_loss"] == plain["metrics"]["test_loss"]


def test_a_device_that_is_none_is_refused():
    from orthosparse.lab.experiments.efficiency import Efficiency

    with pytest.raises(ValueError, match="device: expected auto, cpu, cuda"):
        row_of(Pair(Efficiency("eoi", 8, 0.5), 1), device="tpu")


def test_an_error_ends_its_task_and_is_told_in_one_line_with_its_trace():
    def broken(task, progress):
        raise ValueError("no\nluck")

    pairs = Pair(Odd(), 1), Pair(Odd(), 2)
    (outcome,) = attempt(broken, Task(pairs, pairs[1:]), None)
    assert (outcome.pair, outcome.row, outcome.error) == (pairs[1], None, "ValueError: no luck")
    assert "test_pairs.py" in outcome.trace


def test_only_trainings_share_a_stack():
    pair = Pair(Odd(), 1)
    with pytest.raises(TypeError, match="pairs: expected trainings alone"):
        perform(Task((pair,), (pair,), stacked=True), device="cpu")
