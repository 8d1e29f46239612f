"""Runs of stacks for the tests: their states, stops, and comparisons with single runs."""

import pytest
import torch

from orthosparse.lab.training import Callback, train, train_many
from orthosparse.lab.training.checkpoint import load
from orthosparse.lab.training.stacked import assembly


class Kept:
    """Keeps the state of the stack that a run makes, so that tests can read its weights."""

    def __init__(self, monkeypatch):
        made = assembly.stack_of

        def catching(*arguments, **options):
            self.state = made(*arguments, **options)
            return self.state

        monkeypatch.setattr(assembly, "stack_of", catching)

    @property
    def stack(self):
        return self.state.networks

    def weights(self):
        return [self.stack.state_of(index) for index in range(self.stack.count)]


def check_equal(members, kept, tmp_path, *, weights, losses, **options):
    """Compare with single runs: weights and test losses to relative tolerances, metrics of epochs in float32."""
    together = train_many(members, device="cpu", **options)
    for index, (config, seed) in enumerate(members):
        alone = train(config, seed=seed, out=tmp_path / str(index), device="cpu", logs=())
        row, state = together[index], load(tmp_path / str(index))["model"]
        assert row.keys() == {*alone, "together"}
        for name in ("diverged", "density", "parameters", "test_accuracy", "epochs"):
            assert row[name] == alone[name]
        assert row["test_loss"] == pytest.approx(alone["test_loss"], rel=losses)
        assert row["curves"].keys() == alone["curves"].keys()
        for name, curve in alone["curves"].items():
            if name != "seconds":
                assert row["curves"][name] == pytest.approx(curve, rel=max(losses, 1e-6))
        own = kept.stack.state_of(index)
        assert own.keys() == state.keys()
        for name, value in state.items():
            if value.dtype == torch.bool:
                assert torch.equal(own[name], value)
            else:
                torch.testing.assert_close(own[name], value, rtol=weights, atol=weights * float(value.abs().max()))


class Stop(Callback):
    """Ends a run, as a kill would, in the step after so many; -1 never does."""

    def __init__(self, steps):
        self.steps, self.started = steps, None

    def on_start(self, state):
        self.started = state.steps_done

    def on_step(self, state):
        if 0 <= self.steps == state.steps_done - 1:
            raise KeyboardInterrupt
