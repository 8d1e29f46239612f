"""Runs of ensembles for the tests: looked into, stopped, and compared with single ones."""

import pytest
import torch

from orthosparse.lab.training import train
from orthosparse.lab.training.checkpoint import load
from orthosparse.lab.training.ensemble import run as running
from orthosparse.lab.training.ensemble import train_many
from orthosparse.lab.training.ensemble.state import Ensemble


class Kept:
    """Catches the ensemble that a run makes, to look at its weights."""

    def __init__(self, monkeypatch):
        made = running.ensemble_of

        def catching(*arguments):
            self.ensemble, starts = made(*arguments)
            return self.ensemble, starts

        monkeypatch.setattr(running, "ensemble_of", catching)

    def weights(self):
        return [self.ensemble.state_of(member) for member in range(len(self.ensemble.configs))]


def check_equal(members, kept, tmp_path, *, weights, losses, **options):
    """Compare with single runs: weights and test losses to relative tolerances, metrics of epochs in float32."""
    together = train_many(members, device="cpu", **options)
    for place, (config, seed) in enumerate(members):
        alone = train(config, seed=seed, out=tmp_path / str(place), device="cpu", logs=())
        row, state = together[place], load(tmp_path / str(place))["model"]
        assert row.keys() == {*alone, "together"}
        for name in ("diverged", "density", "parameters", "test_accuracy", "epochs"):
            assert row[name] == alone[name]
        assert row["test_loss"] == pytest.approx(alone["test_loss"], rel=losses)
        assert row["curves"].keys() == {*alone["curves"], "test_accuracy"}
        for name, curve in alone["curves"].items():
            if name != "seconds":
                assert row["curves"][name] == pytest.approx(curve, rel=max(losses, 1e-6))
        own = kept.ensemble.state_of(place)
        assert own.keys() == state.keys()
        for name, value in state.items():
            if value.dtype == torch.bool:
                assert torch.equal(own[name], value)
            else:
                torch.testing.assert_close(own[name], value, rtol=weights, atol=weights * float(value.abs().max()))


class Stop:
    """Ends a run, as a kill would, after so many steps."""

    def __init__(self, monkeypatch, steps):
        self.steps, self.started = steps, None
        whole = Ensemble.steps_done.fget
        make = running.Step

        class Stopping(make):
            def __call__(step, images, labels):
                if self.started is None:
                    self.started = whole(step.ensemble)
                if whole(step.ensemble) == self.steps:
                    raise KeyboardInterrupt
                super().__call__(images, labels)

        monkeypatch.setattr(running, "Step", Stopping)
