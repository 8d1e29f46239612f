import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import sweep_toys

from orthosparse.lab.sweep.engines import ENGINES

local, outcomes_of = ENGINES["local"], sweep_toys.outcomes_of


def quiet(*state):
    pass


def test_every_pair_has_one_outcome_a_row_or_an_error(toys):
    pairs = [*toys.pairs("abc", (1, 2)), toys.pair("d", error="no luck")]
    outcomes = list(outcomes_of(local(sweep_toys.perform, report=quiet), pairs))
    assert {outcome.pair for outcome in outcomes} == set(pairs)
    assert len(outcomes) == len(pairs)
    errors = [outcome for outcome in outcomes if outcome.row is None]
    assert [outcome.error for outcome in errors] == ["ValueError: no luck"]
    assert all(outcome.row["metrics"]["value"] == outcome.pair.seed for outcome in outcomes if outcome.row)


def test_processes_work_side_by_side_report_and_go_on_when_one_is_killed(toys):
    states, victims = [], []

    def kill_one():
        victims.append(toys.wait_for(1, seconds=120)[0])  # at once: its pair has just begun
        os.kill(victims[0][2], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    pairs = [*toys.pairs("abcd", seconds=1.6), toys.pair("e", error="no luck")]
    engine = local(sweep_toys.perform, report=lambda task, *state: states.append((*task.pairs, *state)), jobs=2)
    outcomes = list(outcomes_of(engine, pairs))
    killer.join()
    assert sorted(outcome.pair.experiment.name for outcome in outcomes) == list("abcde")
    assert [outcome.error for outcome in outcomes if not outcome.row] == ["ValueError: no luck"]
    starts = toys.starts()
    assert len({pid for _, _, pid in starts}) == 3
    assert sorted(name for name, _, _ in starts) == sorted([*"abcde", victims[0][0]])
    assert {pair for pair, _, _ in states} == set(pairs[:4])
    assert (0.75, "step 3") in [state[1:] for state in states]


def test_a_pair_that_kills_its_process_again_and_again_is_given_up(toys, monkeypatch):
    monkeypatch.setattr(sys.modules["orthosparse.lab.sweep.engines.local"], "RETRIES", 1)
    (outcome,) = outcomes_of(local(sweep_toys.perform, report=quiet, jobs=2), [toys.pair("a", deadly=True)])
    assert (outcome.row, outcome.error) == (None, "RuntimeError: its process died 2 times")
    assert len({pid for _, _, pid in toys.starts()}) == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_engine_has_room_for_so_many_tasks(toys, jobs):
    with local(sweep_toys.perform, report=quiet, jobs=jobs) as engine:
        for count, pair in enumerate(toys.pairs("abc"[:jobs], seconds=0.1)):
            assert (engine.has_room, engine.running) == (True, count)
            engine.start(sweep_toys.task_of(pair))
        assert (engine.has_room, engine.running) == (False, jobs)


def test_leaving_the_block_ends_the_processes(toys):
    pairs = toys.pairs("abc", seconds=0.0) + toys.pairs("de", seconds=60.0)
    outcomes = outcomes_of(local(sweep_toys.perform, report=quiet, jobs=2), pairs)
    next(outcomes)
    outcomes.close()
    for _, _, pid in toys.starts():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_cluster_s_options_are_refused():
    with pytest.raises(ValueError, match="take --engine ray"):
        local(sweep_toys.perform, report=quiet, address="somewhere:6379")
    with pytest.raises(ValueError, match="take --engine ray"):
        local(sweep_toys.perform, report=quiet, gpus=0.5)


RUNNER = """
import sys
from orthosparse.lab.sweep.engines import ENGINES
import sweep_toys
toys = sweep_toys.Toys(sys.argv[1])
try:
    engine = ENGINES["local"](sweep_toys.save_when_told, report=lambda *state: None, jobs=2)
    for _ in sweep_toys.outcomes_of(engine, toys.pairs("ab")):
        raise AssertionError("no pair ends by itself")
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("to_all", [False, True], ids=["to the parent", "to all"])
def test_the_signal_that_ends_a_job_lets_its_processes_save_what_they_have(toys, tmp_path, to_all):
    command = [sys.executable, "-c", RUNNER, str(toys.log)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as runner:
        end = time.monotonic() + 60
        while len(list(tmp_path.glob("*.begun"))) < 2:
            assert runner.poll() is None, runner.communicate()
            assert time.monotonic() < end, "it never got there"
            time.sleep(0.02)
        os.kill(runner.pid, signal.SIGTERM)
        if to_all:  # as `timeout` does
            os.killpg(runner.pid, signal.SIGTERM)
        _, err = runner.communicate(timeout=60)
    assert sorted(path.name for path in tmp_path.glob("*.saved")) == ["a.saved", "b.saved"]
    assert runner.returncode == 130
    assert "Traceback" not in err


def test_processes_that_are_ended_may_save_what_they_have(toys, tmp_path, capfd):
    with local(sweep_toys.save_when_told, report=quiet, jobs=2) as engine:
        for name in ("a", "b"):
            engine.start(sweep_toys.task_of(toys.pair(name)))
        end = time.monotonic() + 60
        while len(list(tmp_path.glob("*.begun"))) < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
    assert sorted(path.name for path in tmp_path.glob("*.saved")) == ["a.saved", "b.saved"]
    assert "Traceback" not in capfd.readouterr().err
