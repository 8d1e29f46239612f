import time

import pytest
import sweep_toys

from orthosparse.lab.sweep.budget import run_for, seconds_of
from orthosparse.lab.sweep.engines import ENGINES
from orthosparse.lab.sweep.estimates import Estimates


def test_a_time_is_read_in_hours_minutes_and_seconds():
    assert seconds_of("2h5m1s") == 7501
    for wrong in ("", "25", "m", "5m2h", "-5m", "0m", "1.5h", "soon"):
        with pytest.raises(ValueError, match="budget: expected a time like 25m"):
            seconds_of(wrong)


def timed(seconds, steps, store):
    return run_for(seconds, steps, store, ENGINES["local"], perform=sweep_toys.perform, estimates=Estimates())


def test_what_fits_runs_in_order_and_what_does_not_is_begun_and_stopped(store, toys):
    long = toys.pair("long", seconds=60.0, price=1000.0)
    steps = [([toys.pair("a"), long], None), ([toys.pair("b"), toys.pair("c")], None)]
    begin = time.monotonic()
    summary = timed(2.0, steps, store)
    assert time.monotonic() - begin < 20
    assert [name for name, _, _ in toys.starts()] == ["a", "b", "c", "long"]
    assert ([pair.experiment.name for pair in summary.done], summary.postponed) == (["a", "b", "c"], [long])
    assert not store.claim(*toys.pair("a").name, sweep_toys_owner())  # it has a row
    assert store.claim(*long.name, sweep_toys_owner())  # and nobody holds what was stopped


def sweep_toys_owner():
    from orthosparse.lab.sweep.store import Owner

    return Owner("another-machine", 1, "a")


def test_with_time_enough_everything_ends_and_a_failure_is_not_tried_twice(store, toys):
    steps = [([toys.pair("a"), toys.pair("bad", error="no luck")], None), ([toys.pair("a"), toys.pair("b")], None)]
    summary = timed(60.0, steps, store)
    assert [name for name, _, _ in toys.starts()] == ["a", "bad", "b"]
    assert [outcome.error for outcome in summary.failed] == ["ValueError: no luck"]
    assert (len(summary.done), summary.had, summary.postponed) == (2, 0, [])
    assert timed(60.0, steps, store).had == 2


def test_what_costs_too_much_still_ends_if_it_takes_less_time_than_expected(store, toys):
    summary = timed(60.0, [([toys.pair("a", price=1000.0)], None)], store)
    assert len(summary.done) == 1
