import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from orthosparse.lab.process import Interrupt, processors, raise_interrupt, stopped_after

ALLOWED = len(os.sched_getaffinity(0))
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


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted_and_nothing_else(number):
    with Interrupt() as interrupt:
        assert not interrupt.requested
        os.kill(os.getpid(), number)
        assert interrupt.requested


@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", SIGNALS)
def test_the_first_signal_can_raise_and_the_next_at_once_is_the_same_one(first, second):
    before, finished = handlers(), []
    with pytest.raises(KeyboardInterrupt), Interrupt(raise_interrupt):
        try:
            signal.raise_signal(first)
        finally:
            signal.raise_signal(second)
            finished.append("whole")
    assert finished == ["whole"]
    assert handlers() == before


def test_the_same_signal_sent_twice_is_one():
    with Interrupt(grace=60.0) as interrupt:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.requested


@pytest.mark.parametrize("first", [None, raise_interrupt])
def test_the_second_signal_acts_as_usual(first):
    finished = []
    with pytest.raises(KeyboardInterrupt), Interrupt(first, grace=0.0):
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
            finished.append("whole")
    assert finished == []


def test_a_handler_that_a_library_put_before_ours_is_put_away():
    with Interrupt() as interrupt:
        # Behind Python's back, as compilers do it; had it stayed, the signal would be lost.
        ctypes.CDLL(None).signal(int(signal.SIGINT), ctypes.c_void_p(int(signal.SIG_IGN)))
        interrupt.reinstall()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.requested


def test_signals_that_somebody_ignores_or_handles_are_left_alone():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, handle := lambda *call: None)
    with Interrupt() as interrupt:
        interrupt.reinstall()
        assert handlers() == [signal.SIG_IGN, handle]
        os.kill(os.getpid(), signal.SIGINT)
        assert not interrupt.requested
    assert handlers() == [signal.SIG_IGN, handle]


def test_other_threads_install_no_handlers():
    before, inside = handlers(), []

    def work():
        with Interrupt():
            inside.append(handlers())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]


def test_a_block_is_stopped_after_its_time_and_what_follows_goes_on():
    begin = time.monotonic()
    with stopped_after(0.2):
        time.sleep(30)
    assert 0.1 < time.monotonic() - begin < 20


def test_a_block_is_stopped_where_the_process_ignores_ctrl_c():
    """As a job that a script starts in the background does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin = time.monotonic()
    with stopped_after(0.2):
        time.sleep(30)
    assert time.monotonic() - begin < 20
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_time_longer_than_any_timer_is_no_error():
    with stopped_after(1e300):
        time.sleep(0.1)  # an error in the timer's thread is a warning, which fails a test


def test_a_block_that_ends_in_time_is_not_stopped_later():
    with stopped_after(0.2):
        pass
    time.sleep(0.4)


def test_an_interrupt_of_the_user_is_not_taken_for_the_end_of_the_time():
    with pytest.raises(KeyboardInterrupt), stopped_after(30):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)


def test_work_that_takes_signals_itself_saves_before_the_block_ends():
    saved = []
    with stopped_after(0.2), Interrupt() as interrupt:
        while not interrupt.requested:
            time.sleep(0.01)
        saved.append(True)
        raise KeyboardInterrupt
    assert saved


@pytest.mark.parametrize(
    ("quota", "number"),
    [("max 100000", ALLOWED), ("50000 100000", 1), ("100000 100000", 1), (f"{2**20} 1", ALLOWED)],
)
def test_a_container_has_its_quota_and_no_more_than_the_scheduler_allows(tmp_path, quota, number):
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert processors(tmp_path) == number


def test_without_a_quota_it_is_what_the_scheduler_allows(tmp_path):
    assert processors(tmp_path) == ALLOWED


def test_a_process_bound_to_one_processor_has_one():
    code = "from orthosparse.lab.process import processors; print(processors())"
    bound = f"import os; os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}}); {code}"
    done = subprocess.run([sys.executable, "-c", bound], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
