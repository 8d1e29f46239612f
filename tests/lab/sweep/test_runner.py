import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import sweep_toys

from orthosparse.lab.experiments import MaskPicture
from orthosparse.lab.sweep.engines import ENGINES
from orthosparse.lab.sweep.pairs import Pair
from orthosparse.lab.sweep.runner import Budget, Display, Estimates, ordered, run, seconds_of
from orthosparse.lab.sweep.store import Owner, Store

LOCAL = ENGINES["local"]
PROGRAM = Path(sweep_toys.__file__)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results.sqlite")


def sweep(pairs, store, **options):
    return run(pairs, store, LOCAL, perform=sweep_toys.perform, poll=0.02, **options)


def start_runner(store, toys, names, seeds="1", seconds=0.1, jobs=1, runners=1):
    """Start a runner of the toys as a process of its own."""
    command = [PROGRAM, store.path, toys.log, names, seeds, seconds, jobs, runners]
    return subprocess.Popen([sys.executable, *map(str, command)])


def names_of(store):
    return sorted((row["fields"]["name"], row["seed"]) for row in store.rows())


def test_one_seed_of_every_experiment_comes_before_the_second(toys):
    pairs = [toys.pair(name, seed) for name in "abc" for seed in (1, 2)]
    assert [str(pair.experiment.name) + str(pair.seed) for pair in ordered(pairs, set())] == [
        "a1",
        "b1",
        "c1",
        "a2",
        "b2",
        "c2",
    ]


def test_an_experiment_that_has_rows_waits_for_those_that_have_none(toys):
    pairs = [toys.pair(name, seed) for name in "ab" for seed in (1, 2, 3)]
    have = {toys.pair("a", 2).name, toys.pair("a", 7).name}
    assert [(pair.experiment.name, pair.seed) for pair in ordered(pairs, have)] == [
        ("b", 1),
        ("b", 2),
        ("a", 1),
        ("b", 3),
        ("a", 3),
    ]


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
    def interrupted(pair, progress):
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


def test_a_time_is_read_in_hours_minutes_and_seconds():
    assert seconds_of("2h5m1s") == 7501
    for wrong in ("", "25", "m", "5m2h", "-5m", "0m", "1.5h", "soon"):
        with pytest.raises(ValueError, match="budget: expected a time like 25m"):
            seconds_of(wrong)


def test_pairs_that_cannot_end_in_time_are_not_started_and_shorter_ones_are(store, toys):
    pairs = [toys.pair("long", seconds=1000.0), toys.pair("short"), toys.pair("longer", seconds=2000.0)]
    summary = sweep(pairs, store, budget=Budget(60.0, Estimates()))
    assert [pair.experiment.name for pair in summary.done] == ["short"]
    assert [pair.experiment.name for pair in summary.postponed] == ["long", "longer"]
    assert [name for name, _, _ in toys.starts()] == ["short"]


def test_a_pair_that_seemed_too_long_is_run_when_others_turn_out_quicker(store, toys):
    short, longer = toys.pair("a", price=0.3), toys.pair("b", price=0.35)
    estimates = Estimates()
    estimates.add(toys.pair("c", price=1.0).experiment, 60.0)
    budget = Budget(20.0, estimates)  # 18 s are expected for the one, 21 s for the other
    assert [budget.fits(pair.experiment) for pair in (short, longer)] == [True, False]
    summary = run([longer, short], store, LOCAL, perform=sweep_toys.perform, budget=budget, poll=0.02)
    assert (summary.done, summary.postponed) == ([short, longer], [])  # 60.5 s for a price of 1.3: now 16.3 s


def test_a_budget_that_is_over_ends_the_waiting_too(store, toys):
    assert store.claim(*toys.pair().name, Owner("another-machine", 1, "a"))
    summary = sweep([toys.pair()], store, budget=Budget(0.3, Estimates()))
    assert [pair.experiment.name for pair in summary.postponed] == ["a"]


def test_estimates_follow_the_same_experiment_then_its_kind_then_its_own_cost(toys):
    estimates = Estimates()
    known, other = toys.pair("known", seconds=10.0).experiment, toys.pair("other", seconds=4.0).experiment
    assert estimates.seconds(other) == 4.0
    estimates.add(known, 30.0)
    estimates.add(known, 50.0)
    assert estimates.seconds(known) == 40.0
    assert estimates.seconds(other) == pytest.approx(4.0 * 80.0 / 20.0)
    assert estimates.seconds(MaskPicture("eoi")) == MaskPicture("eoi").cost()


def picture(**changes):
    """A row of a picture of SAO's mask, made here in 8 s."""
    return sweep_toys.row_of(Pair(MaskPicture("sao"), 1), device="here", wall_s=8.0) | changes


def test_estimates_learn_from_rows_of_the_same_device_alone():
    estimates = Estimates()
    estimates.learn([picture(), picture(device="elsewhere", wall_s=900.0)], "here")
    assert estimates.seconds(MaskPicture("sao")) == 8.0


@pytest.mark.parametrize(
    "key",
    [
        {"kind": "unheard of"},
        {"kind": "mask_picture", "later": 1, "scheme": "sao"},
        {"kind": "mask_picture", "scheme": "unheard of"},
        {"kind": "mask_picture"},
        {"epochs": "many", "data": "mnist", "kind": "training", "model": "mlp"},
    ],
)
def test_rows_that_only_another_version_can_read_tell_nothing_of_times(key):
    text = json.dumps(key, sort_keys=True, separators=(",", ":"))
    estimates = Estimates()
    estimates.learn([picture(key=text, kind=key["kind"], fields=key, wall_s=900.0), picture(key="not json")], "here")
    assert estimates.seconds(MaskPicture("sao")) == MaskPicture("sao").cost()


def test_pairs_that_ran_as_one_have_a_share_of_the_time_each(toys):
    estimates = Estimates()
    one, two = toys.pair("one", seconds=10.0).experiment, toys.pair("two", seconds=20.0).experiment
    estimates.add(one, 60.0, together=12)
    assert (estimates.seconds(one), estimates.seconds(two)) == (5.0, 10.0)
    assert estimates.seconds(one, two, two) == 25.0


def test_what_ran_alone_tells_of_runs_alone_and_what_ran_as_one_of_runs_as_one(toys):
    estimates = Estimates()
    known, other = toys.pair("known", seconds=10.0).experiment, toys.pair("other", seconds=1.0).experiment
    estimates.add(known, 30.0)
    assert estimates.seconds(known, other) == 33.0  # nothing better is known
    estimates.add(known, 40.0, together=4)
    assert (estimates.seconds(known), estimates.seconds(known, known)) == (30.0, 20.0)
    assert (estimates.seconds(other), estimates.seconds(other, other)) == (3.0, 2.0)


def test_estimates_learn_shares_from_rows_of_pairs_that_ran_as_one():
    estimates = Estimates()
    estimates.learn([picture(wall_s=96.0, metrics={"together": 12})], "here")
    assert estimates.seconds(MaskPicture("sao")) == 8.0


def test_a_sweep_in_a_log_is_a_line_for_each_pair_and_each_error_once(store, toys):
    import io

    from rich.console import Console

    text = io.StringIO()
    pairs = [toys.pair("a"), toys.pair("b", error="no luck"), toys.pair("c", error="no luck")]
    with Display(Console(file=text, width=200)) as display:
        sweep(pairs, store, display=display)
    lines = text.getvalue().splitlines()
    assert len(lines) == 2
    assert "seed 1: 0.5 s" in lines[0]
    assert lines[1].endswith("ValueError: no luck")


def test_in_a_log_what_runs_long_says_how_far_it_is(store, toys, monkeypatch):
    import io

    from rich.console import Console

    from orthosparse.lab import paced

    clock = itertools.count(0, 61)
    monkeypatch.setattr(paced, "monotonic", lambda: float(next(clock)))
    text = io.StringIO()
    with Display(Console(file=text, width=200)) as display:
        sweep([toys.pair("a", seconds=1.2)], store, display=display)
    *running, ended = text.getvalue().splitlines()
    assert any("seed 1: 25 %, step 1" in line for line in running)
    assert ended.endswith(" s")


def test_on_a_terminal_every_running_pair_has_a_line(store, toys):
    import io

    from rich.console import Console

    text = io.StringIO()
    with Display(Console(file=text, width=200, force_terminal=True)) as display:
        sweep([toys.pair("a", seconds=1.2)], store, display=display)
    assert "step 3" in text.getvalue()
    assert "1/1" in text.getvalue()
