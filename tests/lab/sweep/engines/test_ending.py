import signal
import threading

import pytest

from orthosparse.lab.sweep.engines import _ending
from orthosparse.lab.sweep.engines._ending import one_interrupt

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def usual():
    """Signals as a program has them when it starts."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers():
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", SIGNALS)
def test_the_first_signal_is_an_interrupt_and_the_next_at_once_is_the_same_one(first, second):
    before, ended = handlers(), []
    with pytest.raises(KeyboardInterrupt), one_interrupt():
        try:
            signal.raise_signal(first)
        finally:
            signal.raise_signal(second)
            ended.append("whole")
    assert ended == ["whole"]
    assert handlers() == before


def test_a_signal_that_insists_acts_as_usual(monkeypatch):
    monkeypatch.setattr(_ending, "GRACE", 0.0)
    ended = []
    with pytest.raises(KeyboardInterrupt), one_interrupt():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
            ended.append("whole")
    assert ended == []


def test_signals_that_somebody_ignores_or_hears_are_left_to_him():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, hear := lambda *call: None)
    with one_interrupt():
        assert handlers() == [signal.SIG_IGN, hear]
    assert handlers() == [signal.SIG_IGN, hear]


def test_other_threads_hear_no_signals():
    before, inside = handlers(), []

    def work():
        with one_interrupt():
            inside.append(handlers())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]
