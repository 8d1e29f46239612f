"""Forms of the whole network (shrunk, channels last, compiled), each checked against the outputs of the original."""

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from orthosparse.deploying.copies import Arguments, difference, in_format, outputs_of
from orthosparse.deploying.folding import fold_norms
from orthosparse.deploying.shrinking import shrink
from orthosparse.deploying.tracing import first_line, record_shapes, traced
from orthosparse.stopwatch import seconds_in_turn
from orthosparse.substitution import copied

_BLOCK, _ROUNDS = 0.03, 7
Key = TypeVar("Key")


class Networks:
    """Forms of a network that compute the same outputs on an example, by name.

    Attributes:
        expected: outputs of the given network.
        tolerance: largest difference from these outputs that is accepted.
        base: the network whose layers are replaced with their fastest forms: the given one, if possible without batch
            norms and dead units.
        removed: number of output units that each layer lost, by name of the network.
        notes: what was not done, and why.
    """

    def __init__(self, plain: nn.Module, arguments: Arguments, tolerance: float) -> None:
        self.arguments, self.tolerance = arguments, tolerance
        self.expected = outputs_of(plain, arguments)
        self.device = self.expected[0].device
        self.by_name = {"eager": plain}
        self.base = plain
        self.removed: dict[str, dict[str, int]] = {}
        self.notes: list[str] = []

    def error(self, network: nn.Module) -> float:
        """Return the largest difference between the outputs of a network and the expected ones."""
        return difference(outputs_of(network, self.arguments), self.expected)

    def add(self, name: str, network: nn.Module) -> bool:
        """Add a network unless it fails or its outputs differ; return whether it was added."""
        try:
            gap = self.error(network)
        except ValueError as error:  # the model reads what only its own layers have
            self.notes.append(f"{name}: refused, {first_line(error.__cause__ or error)}")
            return False
        if not gap <= self.tolerance:
            self.notes.append(f"{name}: refused, outputs differ by {gap:.1e}")
            return False
        self.by_name[name] = network
        return True

    def add_channels_last(self) -> None:
        """Add the given network in the memory format channels-last, if it has 4-d parameters."""
        plain = self.by_name["eager"]
        if any(parameter.dim() == 4 for parameter in plain.parameters()):
            self.add("channels-last", in_format(plain, torch.channels_last))

    def add_compiled(self, name: str, network: nn.Module) -> None:
        """Add a network compiled by torch, if it compiles."""
        compiled = deepcopy(network)
        compiled.compile(dynamic=False)
        try:
            outputs_of(compiled, self.arguments)
        except ValueError as error:
            self.notes.append(f"{name}: torch.compile fails: {first_line(error.__cause__ or error)}")
        else:
            self.add(name, compiled)

    def add_shrunk(self) -> None:
        """Add the network without batch norms and dead units."""
        graph, reason = traced(deepcopy(self.by_name["eager"]), self.arguments, self.tolerance)
        if graph is None:
            self.notes.append(f"batch norms and dead units were kept: {reason}")
            return
        fold_norms(graph)
        record_shapes(graph, self.arguments)
        forms = {}
        for split in (False, True):
            smaller = deepcopy(graph)
            removed = shrink(smaller, split=split)
            if not self.add("shrunk dense", smaller):
                continue
            if not split:  # sparse layers skip dead channels at no cost, so that channels need not be selected
                self.base, self.removed["deployed"] = smaller, removed
            for memory_format in (torch.contiguous_format, torch.channels_last):
                forms[split, memory_format] = in_format(smaller, memory_format), removed
        times = self._seconds({key: network for key, (network, _) in forms.items()})
        if times:
            best = min(times, key=times.__getitem__)
            self.by_name["shrunk dense"], self.removed["shrunk dense"] = forms[best]

    def times(self) -> dict[str, float]:
        """Return the seconds that each network takes on the example."""
        return self._seconds(self.by_name)

    def _seconds(self, networks: Mapping[Key, nn.Module]) -> dict[Key, float]:
        calls = {}
        for key, network in networks.items():
            args, kwargs = copied(self.arguments)
            calls[key] = partial(network, *args, **kwargs)
        with torch.inference_mode():
            return seconds_in_turn(calls, self.device, block=_BLOCK, rounds=_ROUNDS)
