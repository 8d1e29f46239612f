import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import sweep_toys

from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.sweep.budget import Budget
from orthosparse.lab.sweep.engines import ENGINES
from orthosparse.lab.sweep.estimates import Estimates
from orthosparse.lab.sweep.pairs import Pair, Task, perform
from orthosparse.lab.sweep.runner import run
from orthosparse.lab.sweep.store import Owner

LOCAL = ENGINES["local"]
PROGRAM = Path(sweep_toys.__file__)


def sweep(pairs, store, **options):
    return run(pairs, store, LOCAL, perform=sweep_toys.perform, poll=0.02, **options)


def start_runner(store, toys, names, seeds="1", seconds=0.1, jobs=1, runners=1):
    """Start a runner of the toys as a process of its own."""
    command = [PROGRAM, store.path, toys.log, names, seeds, seconds, jobs, runners]
    return subprocess.Popen([sys.executable, *map(str, command)])


def names_of(store):
    return sorted((row["fields"]["name"], row["seed"]) for row in store.rows())


def test_every_pair_gets_one_row_and_no_pair_with_a_row_runs_again(store, toys):
    pairs = toys.pairs("ab", (1, 2))
    first = sweep([*pairs, pairs[0]], store)
    assert (first.had, len(first.done), first.failed, first.elsewhere) == (0, 4, [], 0)
    again = sweep([*pairs, toys.pair("c")], store)
    assert (again.had, [pair.experiment.name for pair in again.done]) == (4, ["c"])
    assert Counter(toys.starts()).most_common(1)[0][1] == 1
    assert len(store.rows()) == 5


def test_a_pair_that_fails_costs_no_other_and_is_tried_again_next_time(store, toys):
    pairs = [toys.pair("a"), toys.pair("b", error="no luck"), toys.pair("c")]
    summary = sweep(pairs, store)
    assert [outcome.error for outcome in summary.failed] == ["ValueError: no luck"]
    assert "sweep_toys.py" in summary.failed[0].trace
    assert names_of(store) == [("a", 1), ("c", 1)]
    sweep(pairs, store)
    assert [name for name, _, _ in toys.starts()] == ["a", "b", "c", "b"]


def test_an_interrupt_gives_the_claims_back(store, toys):
    def interrupted(task, progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([toys.pair()], store, LOCAL, perform=interrupted)
    assert store.claim(*toys.pair().name, Owner("another-machine", 1, "a"))


def test_the_folder_of_a_pair_is_removed_once_its_row_is_there(store, toys):
    pair, failing = toys.pair(), toys.pair("b", error="no luck")
    folders = [store.runs / pair.folder, store.runs / failing.folder]
    for folder in folders:
        folder.mkdir(parents=True)
    sweep([pair, failing], store)
    assert [folder.exists() for folder in folders] == [False, True]


def test_two_runners_at_once_run_every_pair_once(store, toys):
    names = "a,b,c,d,e,f"
    runners = [start_runner(store, toys, names, "1,2", seconds=0.2, runners=2) for _ in range(2)]
    assert [runner.wait(120) for runner in runners] == [0, 0]
    assert len(store.rows()) == 12
    starts = toys.starts()
    assert len(starts) == 12
    assert len({(name, seed) for name, seed, _ in starts}) == 12
    assert len({pid for _, _, pid in starts}) == 2, "one of the two did nothing"


def test_a_killed_sweep_goes_on_where_it_stopped(store, toys):
    runner = start_runner(store, toys, "a,b,c,d", seconds=1.0)
    toys.wait_for(3)
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    before = names_of(store)
    assert len(before) == 2
    begin = time.monotonic()
    summary = sweep(toys.pairs("abcd", seconds=1.0), store)
    assert time.monotonic() - begin < 55, "the claim of the dead runner was waited for"
    assert (summary.had, len(summary.done)) == (2, 2)
    assert names_of(store) == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
    assert Counter(name for name, _, _ in toys.starts()) == {"a": 1, "b": 1, "c": 2, "d": 1}


def test_pairs_of_a_killed_runner_with_processes_are_not_run_on_by_orphans(store, toys):
    runner = start_runner(store, toys, "a", seconds=60.0, jobs=2)
    workers = [pid for _, _, pid in toys.wait_for(1, seconds=120)]
    assert runner.pid not in workers
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    end = time.monotonic() + 20
    while any(not Owner(Owner.here().host, pid, "a").is_gone() for pid in workers):
        assert time.monotonic() < end, "a worker outlived its runner"
        time.sleep(0.05)


def test_pairs_that_another_runner_holds_are_waited_for_and_not_repeated(store, toys):
    other, held = Owner("another-machine", 1, "a"), toys.pair("a")
    assert store.claim(*held.name, other)
    threading.Timer(0.5, lambda: store.append(sweep_toys.row_of(held))).start()
    summary = sweep([held, toys.pair("b")], store)
    assert ([pair.experiment.name for pair in summary.done], summary.elsewhere) == (["b"], 1)
    assert [name for name, _, _ in toys.starts()] == ["b"]


def test_pairs_of_a_runner_that_gives_no_sign_of_life_are_taken_over(store, toys):
    assert store.claim(*toys.pair().name, Owner("another-machine", 1, "a"))
    summary = sweep([toys.pair()], store, expiry=0.3)
    assert len(summary.done) == 1


def test_a_long_pair_keeps_its_claim_by_heartbeats(store, toys):
    tried = []

    def intrude():
        time.sleep(0.9)  # three times the expiry
        tried.append(store.claim(*toys.pair(seconds=1.5).name, Owner("another-machine", 1, "a"), expiry=0.3))

    thread = threading.Thread(target=intrude)
    thread.start()
    sweep([toys.pair(seconds=1.5)], store, expiry=0.3)
    thread.join()
    assert tried == [False]


def test_pairs_that_cannot_end_in_time_are_not_started_and_shorter_ones_are(store, toys):
    pairs = [toys.pair("long", seconds=1000.0), toys.pair("short"), toys.pair("longer", seconds=2000.0)]
    summary = sweep(pairs, store, budget=Budget(60.0, Estimates()))
    assert [pair.experiment.name for pair in summary.done] == ["short"]
    assert [pair.experiment.name for pair in summary.postponed] == ["long", "longer"]
    assert [name for name, _, _ in toys.starts()] == ["short"]


def test_a_pair_that_seemed_too_long_is_run_when_others_turn_out_quicker(store, toys):
    short, longer = toys.pair("a", price=0.3), toys.pair("b", price=0.35)
    estimates = Estimates()
    other = toys.pair("c", price=1.0)
    estimates.add(other.experiment, sweep_toys.row_of(other), 60.0)
    budget = Budget(20.0, estimates)  # 18 s are expected for the one, 21 s for the other
    assert [budget.fits([pair]) for pair in (short, longer)] == [True, False]
    summary = run([longer, short], store, LOCAL, perform=sweep_toys.perform, budget=budget, poll=0.02)
    assert (summary.done, summary.postponed) == ([short, longer], [])  # 60.5 s for a price of 1.3: now 16.3 s


def test_a_budget_that_is_over_ends_the_waiting_too(store, toys):
    assert store.claim(*toys.pair().name, Owner("another-machine", 1, "a"))
    summary = sweep([toys.pair()], store, budget=Budget(0.3, Estimates()))
    assert [pair.experiment.name for pair in summary.postponed] == ["a"]


def training(seed=1, epochs=1, **fields):
    shape = {"model_options": {"depth": 6, "width": 16}, "epochs": epochs}
    return Pair(Training("mlp1000", "digits", **shape, **fields), seed)


PAIRS = [
    training(density=0.5),
    training(density=0.5, scheme="base", distribution="uniform"),
    training(),
    training(density=0.5, seed=2),
]


def sweep_stacks(pairs, store, *, most=9, engine=LOCAL, **options):
    """Sweep, and return the summary and the pairs of each stack."""
    stacks = []

    def counted(task, progress):
        stacks.extend([list(task.pairs)] * task.stacked)
        return perform(task, progress, runs=store.runs, device="cpu")

    summary = run(pairs, store, engine, perform=counted, together=most, poll=0.02, **options)
    return summary, stacks


def row_alone(pair):
    (row,) = perform(Task((pair,), (pair,)), device="cpu")
    return row


def timeless(row):
    metrics = {name: value for name, value in row["metrics"].items() if "seconds" not in name and name != "together"}
    curves = {name: curve for name, curve in row["curves"].items() if name != "seconds"}
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
    summary, stacks = sweep_stacks([*PAIRS, Pair(MaskPicture("eoi", 8, 0.25), 1)], store)
    assert (len(summary.done), summary.failed, len(stacks)) == (5, [], 1)
    rows = {(row["key"], row["seed"]): row for row in store.rows()}
    for pair in PAIRS:
        row = rows[pair.name]
        assert row["metrics"]["together"] == 4
        close(row, row_alone(pair))
    assert not list(store.runs.glob("together-*"))
    again, stacks = sweep_stacks(PAIRS, store)
    assert (again.had, again.done, stacks) == (4, [], [])


def test_a_member_that_diverges_has_a_row_that_says_so(store):
    # Weights so large that the loss is not finite at once.
    wild = training(gain=1e30, activation="linear")
    summary, stacks = sweep_stacks([wild, training(activation="linear")], store)
    assert (len(summary.done), len(stacks)) == (2, 1)
    (row,) = store.rows(keys=[wild.experiment.key()])
    alone = row_alone(wild)
    assert row["metrics"].pop("warnings") == alone["metrics"].pop("warnings")
    close(row, alone)
    assert row["metrics"]["diverged"] is True


def test_a_member_without_a_start_fails_alone(store):
    summary, _ = sweep_stacks([training(density=0.0001), *PAIRS[:2]], store)
    assert len(summary.done) == 2
    (failed,) = summary.failed
    assert "density: expected at least" in failed.error
    assert [row["metrics"]["together"] for row in store.rows()] == [2, 2]  # it had no part in their time


def test_a_stack_that_fails_as_a_whole_keeps_its_folder(store):
    def broken(task, progress):
        (store.runs / "kept").mkdir(parents=True)
        raise MemoryError("no room")

    summary = run(PAIRS, store, LOCAL, perform=broken, together=9, poll=0.02)
    assert {outcome.error for outcome in summary.failed} == {"MemoryError: no room"}
    assert len(summary.failed) == 4
    assert len(list(store.runs.glob("together-*/members.json"))) == 1


def test_what_another_runner_holds_is_left_to_it(store):
    other = Owner("another-machine", 1, "a")
    assert store.claim(*PAIRS[1].name, other)
    summary, stacks = sweep_stacks(PAIRS, store, expiry=1.0)
    assert len(summary.done) == 4
    assert [len(members) for members in stacks] == [3, 1]  # the fourth once its claim was void


def test_a_stack_that_was_begun_waits_for_all_of_its_pairs(store):
    def stopped(task, progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(PAIRS, store, LOCAL, perform=stopped, together=9)
    assert store.claim(*PAIRS[3].name, Owner("another-machine", 1, "a"))
    summary, stacks = sweep_stacks(PAIRS, store, expiry=1.0)
    assert (len(summary.done), [set(members) for members in stacks]) == (4, [set(PAIRS)])


def test_stacks_train_in_processes_too(store):
    work = partial(perform, runs=store.runs, device="cpu")
    summary = run(PAIRS, store, partial(LOCAL, jobs=2), perform=work, together=2)
    assert (len(summary.done), summary.failed) == (4, [])
    rows = {(row["key"], row["seed"]): row for row in store.rows()}
    assert [rows[pair.name]["metrics"]["together"] for pair in PAIRS] == [2] * 4
    close(rows[PAIRS[0].name], row_alone(PAIRS[0]))


def test_a_stack_that_cannot_end_in_time_is_not_started(store):
    summary, stacks = sweep_stacks(PAIRS, store, budget=Budget(0.5, Estimates()))
    assert (summary.done, stacks, len(summary.postponed)) == ([], [], 4)


def known(seconds):
    """Estimates of runs alone, of all the pairs."""
    estimates = Estimates()
    estimates.learn([sweep_toys.row_of(pair, wall_s=seconds) for pair in PAIRS], "cpu")
    return estimates


def test_of_pairs_that_would_run_as_one_as_many_are_started_as_can_end_in_time(store):
    summary, stacks = sweep_stacks(PAIRS, store, budget=Budget(250.0, known(100.0)))
    assert stacks == [PAIRS[:2], PAIRS[2:]]  # those two took no time at all, so that it is there for the others
    assert (len(summary.done), summary.postponed) == (4, [])


def test_a_stack_that_was_begun_and_cannot_end_in_time_is_left_whole_and_not_waited_for(store):
    def stopped(task, progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(PAIRS, store, LOCAL, perform=stopped, together=9)
    summary, stacks = sweep_stacks(PAIRS, store, budget=Budget(250.0, known(100.0)))
    assert (summary.done, stacks, len(summary.postponed)) == ([], [], 4)


def test_a_stack_that_was_begun_is_resumed_by_a_budget_that_resumes(store):
    def stopped(task, progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(PAIRS, store, LOCAL, perform=stopped, together=9)
    summary, stacks = sweep_stacks(PAIRS, store, budget=Budget(250.0, known(100.0), resumes=True))
    assert (len(summary.done), [set(members) for members in stacks]) == (4, [set(PAIRS)])


def test_a_sweep_learns_the_share_of_each_pair_of_a_stack(store):
    estimates = Estimates()
    sweep_stacks(PAIRS, store, budget=Budget(600.0, estimates))
    (wall,) = {row["wall_s"] for row in store.rows()}
    assert estimates.seconds((pair.experiment for pair in PAIRS), stacked=True) == pytest.approx(wall)


STACKS = """
import sys
from functools import partial
import torch
from orthosparse.lab.sweep.engines import ENGINES
from orthosparse.lab.sweep.pairs import perform
from orthosparse.lab.sweep.runner import run
from orthosparse.lab.sweep.store import Store
from orthosparse.lab.training import rows as running
torch.set_num_threads(1)
saving = running.Saving
running.Saving = lambda folder, settings, every, seconds: saving(folder, settings, every=5, seconds=seconds)
sys.path.insert(0, sys.argv[1])
from test_runner import longer
store = Store(sys.argv[2])
run(longer(), store, ENGINES["local"], perform=partial(perform, runs=store.runs, device="cpu"), together=9)
"""


def longer():
    return [training(seed=pair.seed, epochs=12, **_own(pair)) for pair in PAIRS]


def _own(pair):
    names = ("density", "scheme", "distribution")
    return {name: value for name, value in pair.experiment.given().items() if name in names}


def test_a_killed_sweep_goes_on_with_the_checkpoint_of_its_stack(store, toys):
    command = [sys.executable, "-c", STACKS, str(Path(__file__).parent), str(store.path)]
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
    summary, stacks = sweep_stacks(pairs, store)
    assert (len(summary.done), len(stacks)) == (4, 1)
    assert int(saved.split("-")[1].split(".")[0]) >= 5
    rows = {(row["key"], row["seed"]): row for row in store.rows()}
    assert all(row["metrics"]["resumed_seconds"] > 0 for row in rows.values())
    close(rows[pairs[2].name], row_alone(pairs[2]))
