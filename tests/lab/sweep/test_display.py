import io
import itertools

import sweep_toys
from rich.console import Console

from orthosparse.lab.sweep import display as throttle
from orthosparse.lab.sweep.display import Display
from orthosparse.lab.sweep.engines import ENGINES
from orthosparse.lab.sweep.runner import run


def sweep(pairs, store, **options):
    return run(pairs, store, ENGINES["local"], perform=sweep_toys.perform, poll=0.02, **options)


def test_a_sweep_in_a_log_is_a_line_for_each_pair_and_each_error_once(store, toys):
    text = io.StringIO()
    pairs = [toys.pair("a"), toys.pair("b", error="no luck"), toys.pair("c", error="no luck")]
    with Display(Console(file=text, width=200)) as display:
        sweep(pairs, store, display=display)
    lines = text.getvalue().splitlines()
    assert len(lines) == 2
    assert "seed 1: 0.5 s" in lines[0]
    assert lines[1].endswith("ValueError: no luck")


def test_in_a_log_what_runs_long_says_how_far_it_is(store, toys, monkeypatch):
    clock = itertools.count(0, 61)
    monkeypatch.setattr(throttle, "monotonic", lambda: float(next(clock)))
    text = io.StringIO()
    with Display(Console(file=text, width=200)) as display:
        sweep([toys.pair("a", seconds=1.2)], store, display=display)
    *running, finished = text.getvalue().splitlines()
    assert any("seed 1: 25 %, step 1" in line for line in running)
    assert finished.endswith(" s")


def test_on_a_terminal_every_running_pair_has_a_line(store, toys):
    text = io.StringIO()
    with Display(Console(file=text, width=200, force_terminal=True)) as display:
        sweep([toys.pair("a", seconds=1.2)], store, display=display)
    assert "step 3" in text.getvalue()
    assert "1/1" in text.getvalue()


def test_a_log_gets_a_line_a_minute_and_the_first_after_one(monkeypatch):
    now, reported = [0.0], []
    monkeypatch.setattr(throttle, "monotonic", lambda: now[0])
    tell = throttle.Throttle(reported.append)
    for second in range(0, 200, 7):
        now[0] = float(second)
        tell("network", second / 200, f"step {second}")
    assert reported == ["network: 32 %, step 63", "network: 63 %, step 126", "network: 94 %, step 189"]


def test_nothing_is_added_where_there_are_no_words():
    reported = []
    throttle.Throttle(reported.append, seconds=0)("network", 1.0, "")
    assert reported == ["network: 100 %"]
