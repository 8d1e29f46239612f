"""Training the networks in one stack by the paper's optimizer and schedule, and what came of it epoch by epoch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from orthosparse.lab.data import Dataset
from orthosparse.lab.demo.networks import Shape
from orthosparse.lab.training.callbacks import Callback
from orthosparse.lab.training.devices import launch
from orthosparse.lab.training.loop import fit
from orthosparse.lab.training.recipe import Recipe
from orthosparse.lab.training.run import Run
from orthosparse.lab.training.stacked.assembly import stack_of
from orthosparse.lab.training.starts import Start
from orthosparse.lab.training.state import State


@dataclass(frozen=True)
class History:
    """What happened, a list entry a network in each: losses epoch by epoch, test accuracies after each epoch."""

    losses: list[list[float]] = field(default_factory=list)
    accuracies: list[list[float]] = field(default_factory=list)


Announce = Callable[[int, list[float], list[float]], None]


def train(
    networks: Mapping[str, nn.Module],
    shape: Shape,
    recipe: Recipe,
    data: Dataset,
    seed: int,
    announce: Announce | None = None,
) -> History:
    """Train all networks on the same batches and return how it went; the networks themselves stay as they are.

    Args:
        seed: of the order of the samples.
        announce: called as ``announce(epoch, losses, accuracies)`` after every epoch.
    """
    size = {"depth": shape.depth, "width": shape.width}
    run = Run("mlp", "digits", recipe, "tanh", size, validation=False)
    starts = [Start.of(network.state_dict()) for network in networks.values()]
    state = stack_of([(run, seed)] * len(starts), starts, data, launch(device="cpu", precision=recipe.precision))
    history = History()
    fit(state, [_Recorder(history, announce)])
    return history


@dataclass(frozen=True)
class _Recorder(Callback):
    """Adds every epoch to a history, and announces it."""

    history: History
    announce: Announce | None

    def on_epoch(self, state: State) -> None:
        last = [epochs[-1] for epochs in state.histories]
        self.history.losses.append([each["loss"] for each in last])
        self.history.accuracies.append([each["test_accuracy"] for each in last])
        if self.announce is not None:
            self.announce(state.epoch - 1, self.history.losses[-1], self.history.accuracies[-1])
