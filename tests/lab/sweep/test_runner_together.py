"""Sweeps that run trainings of one shape as one."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from orthosparse.lab.experiments import MaskPicture, Training
from orthosparse.lab.sweep.engines import ENGINES
from orthosparse.lab.sweep.pairs import Pair, perform, perform_together
from orthosparse.lab.sweep.runner import Budget, Estimates, Together, run
from orthosparse.lab.sweep.store import Owner, Store

LOCAL = ENGINES["local"]


def training(seed=1, epochs=1, **fields):
    shape = {"model_options": {"depth": 6, "width": 16}, "epochs": epochs}
    return Pair(Training("mlp1000", "digits", **shape, **fields), seed)


PAIRS = [
    training(density=0.5),
    training(density=0.5, scheme="base", distribution="uniform"),
    training(),
    training(density=0.5, seed=2),
]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results.sqlite")


def sweep(pairs, store, *, most=9, engine=LOCAL, **options):
    calls = []

    def counted(members, progress):
        calls.append(list(members))
        return perform_together(members, progress, runs=store.runs, device="cpu")

    alone = partial(perform, runs=store.runs, device="cpu")
    summary = run(pairs, store, engine, perform=alone, together=Together(most, counted), poll=0.02, **options)
    return summary, calls


def timeless(row):
    metrics = {name: value for name, value in row["metrics"].items() if "seconds" not in name and name != "together"}
    curves = {name: curve for name, curve in row["curves"].items() if name not in ("seconds", "test_accuracy")}
    return {**row, "metrics": metrics, "curves": curves, "wall_s": 0, "time": ""}


def close(one, two):
    """Rows of one experiment, trained in float32 in two ways."""
    one, two = timeless(one), timeless(two)
    assert one.pop("metrics") == pytest.approx(two.pop("metrics"), rel=1e-3)
    mine, theirs = one.pop("curves"), two.pop("curves")
    assert mine.keys() == theirs.keys()
    for name, curve in theirs.items():
        assert mine[name] == pytest.approx(curve, rel=1e-3)
    assert one == two


def test_pairs_that_ran_together_have_the_rows_that_they_have_alone(store):
    summary, calls = sweep([*PAIRS, Pair(MaskPicture("eoi", 8, 0.25), 1)], store)
    assert (len(summary.done), summary.failed, len(calls)) == (5, [], 1)
    rows = {(row["key"], row["seed"]): row for row in store.rows()}
    for pair in PAIRS:
        row = rows[pair.name]
        assert row["metrics"]["together"] == 4
        assert row["curves"]["test_accuracy"][-1] == pytest.approx(row["metrics"]["test_accuracy"], rel=1e-5)
        close(row, perform(pair, device="cpu"))
    assert not list(store.runs.glob("together-*"))
    again, calls = sweep(PAIRS, store)
    assert (again.had, again.done, calls) == (4, [], [])


def test_a_member_that_diverges_has_a_row_that_says_so(store):
    # Weights so large that the loss is not finite at once.
    wild = training(gain=1e30, activation="linear")
    summary, calls = sweep([wild, training(activation="linear")], store)
    assert (len(summary.done), len(calls)) == (2, 1)
    (row,) = store.rows(keys=[wild.experiment.key()])
    alone = perform(wild, device="cpu")
    assert row["metrics"].pop("warnings") == alone["metrics"].pop("warnings")
    close(row, alone)
    assert row["metrics"]["diverged"] is True


def test_a_member_without_a_start_fails_alone(store):
    summary, _ = sweep([training(density=0.0001), *PAIRS[:2]], store)
    assert len(summary.done) == 2
    (failed,) = summary.failed
    assert "density: expected at least" in failed.error
    assert [row["metrics"]["together"] for row in store.rows()] == [2, 2]  # it had no part in their time


def test_a_bundle_that_fails_as_a_whole_keeps_its_folder(store):
    def broken(members, progress):
        (store.runs / "kept").mkdir(parents=True)
        raise MemoryError("no room")

    summary = run(PAIRS, store, LOCAL, perform=perform, together=Together(9, broken), poll=0.02)
    assert {outcome.error for outcome in summary.failed} == {"MemoryError: no room"}
    assert len(summary.failed) == 4
    assert len(list(store.runs.glob("together-*/members.json"))) == 1


def test_what_another_runner_holds_is_left_to_it(store):
    other = Owner("another-machine", 1, "a")
    assert store.claim(*PAIRS[1].name, other)
    summary, calls = sweep(PAIRS, store, expiry=1.0)
    assert len(summary.done) == 4
    assert [len(members) for members in calls] == [3, 1]  # the fourth once its claim was void


def test_a_bundle_that_was_begun_waits_for_all_of_its_pairs(store, monkeypatch):
    def stopped(members, progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(PAIRS, store, LOCAL, perform=perform, together=Together(9, stopped))
    assert store.claim(*PAIRS[3].name, Owner("another-machine", 1, "a"))
    summary, calls = sweep(PAIRS, store, expiry=1.0)
    assert (len(summary.done), [set(members) for members in calls]) == (4, [set(PAIRS)])


def test_bundles_need_one_process(store):
    with pytest.raises(TypeError, match="bundles run in one process"):
        sweep(PAIRS, store, engine=partial(LOCAL, jobs=2))


def test_a_bundle_that_cannot_end_in_time_is_not_started(store):
    summary, calls = sweep(PAIRS, store, budget=Budget(0.5, Estimates()))
    assert (summary.done, calls, len(summary.postponed)) == ([], [], 4)


def known(seconds):
    """Estimates of runs alone, of all the pairs."""
    estimates = Estimates()
    for pair in PAIRS:
        estimates.add(pair.experiment, seconds)
    return estimates


def test_of_pairs_that_would_run_as_one_as_many_are_started_as_can_end_in_time(store):
    summary, calls = sweep(PAIRS, store, budget=Budget(250.0, known(100.0)))
    assert calls == [PAIRS[:2], PAIRS[2:]]  # those two took no time at all, so that it is there for the others
    assert (len(summary.done), summary.postponed) == (4, [])


def test_a_bundle_that_was_begun_and_cannot_end_in_time_is_left_whole_and_not_waited_for(store):
    def stopped(members, progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(PAIRS, store, LOCAL, perform=perform, together=Together(9, stopped))
    summary, calls = sweep(PAIRS, store, budget=Budget(250.0, known(100.0)))
    assert (summary.done, calls, len(summary.postponed)) == ([], [], 4)


def test_a_sweep_learns_the_share_of_each_pair_of_a_bundle(store):
    estimates = Estimates()
    sweep(PAIRS, store, budget=Budget(600.0, estimates))
    (wall,) = {row["wall_s"] for row in store.rows()}
    assert estimates.seconds(*(pair.experiment for pair in PAIRS)) == pytest.approx(wall)


PROGRAM = """
import sys
from functools import partial
import torch
from orthosparse.lab.sweep.engines import ENGINES
from orthosparse.lab.sweep.pairs import perform, perform_together
from orthosparse.lab.sweep.store import Store
from orthosparse.lab.sweep.runner import Together, run
from orthosparse.lab.training.ensemble import run as running
torch.set_num_threads(1)
saving = running.Saving
running.Saving = lambda folder, settings, every, seconds: saving(folder, settings, every=5, seconds=seconds)
sys.path.insert(0, sys.argv[1])
from test_runner_together import longer
store = Store(sys.argv[2])
places = {"runs": store.runs, "device": "cpu"}
together = Together(9, partial(perform_together, **places))
run(longer(), store, ENGINES["local"], perform=partial(perform, **places), together=together)
"""


def longer():
    return [training(seed=pair.seed, epochs=12, **_own(pair)) for pair in PAIRS]


def _own(pair):
    names = ("density", "scheme", "distribution")
    return {name: value for name, value in pair.experiment.given().items() if name in names}


def test_a_killed_sweep_goes_on_with_the_checkpoint_of_its_bundle(store):
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(store.path)]
    with subprocess.Popen(command) as runner:
        end = time.monotonic() + 120
        while not list(store.runs.glob("together-*/checkpoint-*.json")):
            assert time.monotonic() < end, "no checkpoint"
            assert runner.poll() is None, "it ended"
            time.sleep(0.02)
        os.kill(runner.pid, signal.SIGKILL)
    (folder,) = store.runs.glob("together-*")
    saved = max(folder.glob("checkpoint-*.json")).name
    assert store.rows() == []
    pairs = longer()
    summary, calls = sweep(pairs, store)
    assert (len(summary.done), len(calls)) == (4, 1)
    assert int(saved.split("-")[1].split(".")[0]) >= 5
    rows = {(row["key"], row["seed"]): row for row in store.rows()}
    assert all(row["metrics"]["resumed_seconds"] > 0 for row in rows.values())
    close(rows[pairs[2].name], perform(pairs[2], device="cpu"))
