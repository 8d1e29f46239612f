"""Masks that move: a step at which they do a member takes as it would alone, by a network and a rewirer of its own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lightning_fabric import Fabric
from torch import Tensor, nn

from orthosparse.lab.data import Dataset
from orthosparse.lab.seeds import fenced
from orthosparse.lab.training.assembly import assemble
from orthosparse.lab.training.ensemble.state import Ensemble
from orthosparse.lab.training.run import Run
from orthosparse.lab.training.state import State
from orthosparse.lab.training.stepper import Stepper
from orthosparse.parametrized import plain_name


class _Before(NamedTuple):
    """A member as it was before a step."""

    model: dict[str, Tensor]
    momentum: dict[str, Tensor]


class Moving:
    """The members of an ensemble whose masks move, each with the run that it would be alone.

    At an update that run gets the member's weights and momentum, takes the step, moves its masks, and gives all of it
    back; at all other steps it stands still. Every few hundred steps that costs a step of a single run each.
    """

    def __init__(self, ensemble: Ensemble, members: Sequence[tuple[Run, int]], data: Dataset, fabric: Fabric) -> None:
        self._ensemble = ensemble
        self._steppers: dict[int, Stepper] = {}
        for place in moving_places(ensemble):
            config, seed = members[place]
            state = assemble(config, seed, fabric, data=data, saved=ensemble.state_of(place)).state
            self._steppers[place] = Stepper(state, graph=False, at_once=False)

    def before(self) -> dict[int, _Before]:
        """Return the members whose masks move at the next step, as they are now."""
        taken: dict[int, _Before] = {}
        for place, stepper in self._steppers.items():
            rewirer = stepper.state.rewirer
            rewirer.taken = self._ensemble.steps_done
            if rewirer.due:
                momentum = {name: tensor for slab in self._ensemble.slabs for name, tensor in slab.momenta_of(place)}
                taken[place] = _Before(self._ensemble.state_of(place), momentum)
        return taken

    def after(self, taken: Mapping[int, _Before], images: Tensor, labels: Tensor) -> None:
        """Let members take the step again, alone, and move their masks; not those that stopped at it."""
        alive = self._ensemble.records.alive.tolist()
        device = self._ensemble.device
        # Layers may draw from torch's global generators, which a single run seeds at every step.
        with fenced(0, [device] if device.type == "cuda" else []):
            for place, before in taken.items():
                if alive[place]:
                    self._again(place, before, images[place], labels[place])

    def take(self) -> list[dict[str, Any]]:
        """Return what a resumed run needs beside weights: masks, and how far the rewirers are."""
        taken = []
        for place, stepper in self._steppers.items():
            model = self._ensemble.state_of(place)
            masks = {name: tensor.cpu() for name, tensor in model.items() if name.endswith("_mask")}
            taken.append({"place": place, "masks": masks, "rewirer": stepper.state.rewirer.state_dict()})
        return taken

    def put_back(self, taken: Sequence[Mapping[str, Any]]) -> None:
        """Go on from what `take` returned; the weights, which are saved under the masks, come after it."""
        for each in taken:
            for slab in self._ensemble.slabs:
                slab.fill_masks(each["place"], each["masks"])
            self._steppers[each["place"]].state.rewirer.load_state_dict(each["rewirer"])

    def _again(self, place: int, before: _Before, images: Tensor, labels: Tensor) -> None:
        stepper, ensemble = self._steppers[place], self._ensemble
        state = stepper.state
        state.network.load_state_dict(before.model)
        for name, parameter in _parameters(state):
            state.optimizer.state[parameter]["momentum_buffer"] = before.momentum[name]
        state.epoch, state.step = ensemble.epoch, ensemble.step
        state.set_rate()
        state.rewirer.load_state_dict({**state.rewirer.state_dict(), "taken": ensemble.steps_done})  # it listens now
        stepper(images, labels)
        model = state.network.state_dict()
        momenta = {name: state.optimizer.state[parameter]["momentum_buffer"] for name, parameter in _parameters(state)}
        for slab in ensemble.slabs:
            slab.fill(place, model)
            slab.fill_momenta(place, momenta)


def moving_places(ensemble: Ensemble) -> list[int]:
    """Return the places of members whose masks move, and that have a start."""
    alive = ensemble.records.alive.tolist()
    return [place for place, own in enumerate(ensemble.configs) if own.dynamic is not None and alive[place]]


def _parameters(state: State) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters of a network by the names that they have without masks."""
    for name, parameter in state.network.named_parameters():
        yield plain_name(name), parameter
