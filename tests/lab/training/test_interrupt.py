"""An interrupt is kept until a step has ended; the state it leaves goes on to the same weights."""

import os
import signal

import pytest

from orthosparse.lab.training import Callback, fit, train
from orthosparse.lab.training.saving import Saving


class Pressing(Callback):
    """A signal in the middle of the loop: before the callbacks of a step, or of an epoch."""

    def __init__(self, step=None, epoch=None, number=signal.SIGINT):
        self.step, self.epoch, self.number = step, epoch, number

    def on_step(self, state):
        if state.steps_done == self.step:
            os.kill(os.getpid(), self.number)

    def on_epoch(self, state):
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
    assert resumed["curves"]["loss"] == whole["curves"]["loss"]
