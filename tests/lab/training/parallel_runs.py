"""The processes of a parallel run: train with several options and write the loss of every step to a file."""

import dataclasses
import json
import os
import sys
from pathlib import Path

import torch

from orthosparse.lab.training import Callback, Recipe, Run, train
from orthosparse.lab.training.devices import leave

RECIPE = Recipe(epochs=2, lr=0.2, batch=64, dense_init="orthogonal", accumulate=2)
CONFIG = Run("mlp", "digits", RECIPE, "tanh", {"depth": 3, "width": 24}, density=0.3, scheme="base", every=4)


class Curve(Callback):
    def __init__(self, stop=None):
        self.losses, self.stop = [], stop

    def on_start(self, state):
        self.world = state.fabric.world_size

    def on_step(self, state):
        if state.step == len(state.loader):
            self.losses += state.values()[0, :, 0].tolist()
        if state.steps_done == self.stop:
            raise InterruptedError


def curve(strategy, dynamic, out=None):
    """Return the losses; with a folder, those of a run that is stopped at step 30 and resumed."""
    config = dataclasses.replace(CONFIG, dynamic=dynamic)
    where = {"device": "cpu", "strategy": strategy}
    seen = Curve(stop=None if out is None else 30)
    try:
        row = train(config, seed=1, callbacks=[seen], out=out, checkpoint_steps=8, **where)
    except InterruptedError:
        rest = Curve()
        row = train(config, seed=1, callbacks=[rest], out=out, resume=True, **where)
        seen.losses += rest.losses
    return {"losses": seen.losses, "test_loss": row["test_loss"], "world": seen.world}


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    curves = {
        "ddp": curve("ddp", None),
        "ddp rigl": curve("ddp", "rigl"),
        "ddp resumed": curve("ddp", "set", folder / "ddp"),
        "fsdp": curve("fsdp", None),
        "fsdp resumed": curve("fsdp", "rigl", folder / "fsdp"),
    }
    # What `fabric run --accelerator cpu --devices 2` adds to torchrun.
    os.environ |= {"LT_CLI_USED": "1", "LT_ACCELERATOR": "cpu", "LT_DEVICES": "2", "LT_NUM_NODES": "1"}
    curves["fabric run"] = curve("auto", None)
    if torch.distributed.get_rank() == 0:
        (folder / "curves.json").write_text(json.dumps(curves))
    leave()
