import os
import signal
import socket
import threading
from collections import Counter
from functools import partial

import pytest
import sweep_toys

from orthosparse.lab.sweep.engines import ENGINES
from orthosparse.lab.sweep.engines import ray as engine
from orthosparse.lab.sweep.engines.ray import _shares
from orthosparse.lab.sweep.runner import run
from orthosparse.lab.sweep.store import Store

ray = pytest.importorskip("ray")


def test_a_local_cluster_loses_a_worker_and_every_pair_still_has_one_row(toys, tmp_path):
    states, victims = [], []
    pairs = [*toys.pairs("abcde", (1,), seconds=2.0), toys.pair("f", error="no luck")]
    store, by_hand = Store(tmp_path / "ray.sqlite"), Store(tmp_path / "local.sqlite")

    def kill_one():
        victims.append(toys.wait_for(3, seconds=120)[-1])  # in the middle: one pair has ended, two are under way
        os.kill(victims[0][2], signal.SIGKILL)

    def engine(perform, report):
        def reported(task, *state):
            states.append((*task.pairs, *state))
            report(task, *state)

        return ENGINES["ray"](perform, report=reported, jobs=2)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    summary = run(pairs, store, engine, perform=sweep_toys.perform)
    killer.join()
    assert not ray.is_initialized(), "the cluster was left running"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "Ray's own handler was left"

    assert sorted(row["fields"]["name"] for row in store.rows()) == list("abcde")
    assert [outcome.error for outcome in summary.failed] == ["ValueError: no luck"]
    starts = Counter(name for name, _, _ in toys.starts())
    assert starts == Counter("abcdef") + Counter(victims[0][0]), "only the pair of the killed worker runs twice"
    reported = {pair.experiment.name for pair, _, _ in states}  # of those that were under way when the driver looked
    assert reported, "no task told its progress"
    assert reported <= set("abcde")

    run(pairs, by_hand, partial(ENGINES["local"]), perform=sweep_toys.perform)
    assert by_hand.rows() == store.rows()


def test_nothing_to_run_starts_no_cluster(monkeypatch):
    monkeypatch.setattr(engine, "connected", None)
    assert (
        list(sweep_toys.outcomes_of(ENGINES["ray"](sweep_toys.perform, report=print, address="127.0.0.1:1"), [])) == []
    )


def answer_of(toys, address):
    engine = ENGINES["ray"](sweep_toys.perform, report=print, address=address)
    return next(sweep_toys.outcomes_of(engine, [toys.pair()]))


def test_an_address_where_nobody_listens_is_an_error_at_once(toys):
    with pytest.raises(ConnectionError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 .*refused"):
        answer_of(toys, "127.0.0.1:1")


def test_an_address_that_listens_but_does_not_answer_is_an_error_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            pytest.raises(ConnectionError, match=f"no Ray cluster answers at {address} .*within 3 s"),
            engine.connected(address, None, patience=3.0),
        ):
            pass


@pytest.mark.parametrize("address", ["", "somewhere", "host:port", "host:99999", "ray://host"])
def test_what_is_no_address_is_refused(toys, address):
    with pytest.raises(ValueError, match="address: expected HOST:PORT"):
        answer_of(toys, address)


def test_a_gpu_is_shared_equally_unless_told_otherwise():
    assert _shares(16, 1, 4, None) == (0.25, 4)
    assert _shares(16, 1, None, 0.125) == (0.125, 8)
    assert _shares(2, 1, None, 0.125) == (0.125, 2)
    assert _shares(2, 0, None, 0.5) == (0.0, 2)
