"""An interrupt is kept until a step has ended; the state it leaves goes on to the same weights."""

import ctypes
import os
import signal
import threading

import pytest

from orthosparse.lab.training import Callback, fit, train
from orthosparse.lab.training.interrupt import Interrupt
from orthosparse.lab.training.saving import Saving


class Pressing(Callback):
    """A signal in the middle of the loop: before the callbacks of a step, or of an epoch."""

    def __init__(self, step=None, epoch=None, number=signal.SIGINT):
        self.step, self.epoch, self.number = step, epoch, number

    def on_step(self, state, verify):
        if state.steps_done == self.step:
            os.kill(os.getpid(), self.number)

    def on_epoch(self, state, metrics):
        if state.epoch == self.epoch:
            os.kill(os.getpid(), self.number)


@pytest.fixture(autouse=True)
def handler():
    """The usual handlers, before and after."""
    usual = signal.default_int_handler, signal.SIG_DFL
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == usual
    yield
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == usual


@pytest.mark.parametrize(
    ("press", "saved"), [(Pressing(step=5), 5), (Pressing(epoch=1), 21), (Pressing(step=3, number=signal.SIGTERM), 3)]
)
def test_the_step_ends_and_is_saved_before_the_interrupt_is_raised(assembled, tmp_path, press, saved):
    state = assembled()
    with pytest.raises(KeyboardInterrupt):
        fit(state, [press, Saving(tmp_path, {})])
    assert state.steps_done == saved
    assert [int(path.stem.split("-")[1]) for path in tmp_path.glob("checkpoint-*.json")] == [saved]


def test_an_interrupted_run_goes_on_to_the_same_result(config, tmp_path):
    settings = config()
    with pytest.raises(KeyboardInterrupt):
        train(settings, seed=1, out=tmp_path / "cut", device="cpu", callbacks=[Pressing(step=7)])
    resumed = train(settings, seed=1, out=tmp_path / "cut", device="cpu", resume=True)
    whole = train(settings, seed=1, out=tmp_path / "whole", device="cpu")
    assert resumed["test_loss"] == whole["test_loss"]
    assert [epoch["loss"] for epoch in resumed["epochs"]] == [epoch["loss"] for epoch in whole["epochs"]]


def test_the_second_interrupt_raises_at_once():
    interrupt = Interrupt(grace=0.0)
    interrupt.listen()
    os.kill(os.getpid(), signal.SIGINT)
    assert interrupt.asked
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_the_same_interrupt_sent_twice_is_one():
    interrupt = Interrupt(grace=60.0)
    interrupt.listen()
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
    assert interrupt.asked
    interrupt.rest()


def test_a_handler_that_a_library_put_before_ours_is_put_away():
    interrupt = Interrupt()
    interrupt.listen()
    number = int(signal.SIGINT)
    # Behind Python's back, as compilers do it; had it stayed, the signal would be lost.
    ignore = ctypes.c_void_p(int(signal.SIG_IGN))
    ctypes.CDLL(None).signal(number, ignore)
    interrupt.insist()
    os.kill(os.getpid(), signal.SIGINT)
    assert interrupt.asked
    interrupt.rest()


def test_who_ignores_interrupts_goes_on_ignoring_them():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupt = Interrupt()
    try:
        interrupt.listen()
        os.kill(os.getpid(), signal.SIGINT)
        assert not interrupt.asked
    finally:
        interrupt.rest()
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_only_the_main_thread_listens():
    interrupt = Interrupt()
    thread = threading.Thread(target=interrupt.listen)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
