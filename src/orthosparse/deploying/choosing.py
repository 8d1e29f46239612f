"""Choose the fastest form of each layer, measured on its own inputs in one forward pass of the network."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from orthosparse.deploying.copies import Arguments, difference, outputs_of
from orthosparse.deploying.folding import LAYERS, Layer
from orthosparse.deploying.forms import CHANNELS_LAST, DENSE, forms_of
from orthosparse.deploying.modules import EntriesLinear
from orthosparse.deploying.rules import is_pointwise
from orthosparse.deploying.table import DeployedLayer
from orthosparse.deploying.tracing import calls_of
from orthosparse.masking.exchange import exchange
from orthosparse.progress import Reporter
from orthosparse.stopwatch import seconds_in_turn

_BLOCK, _ROUNDS = 0.005, 7
_MARGIN = 0.9  # a form replaces the default one if it takes at most this fraction of its time


def choose(model: nn.Module, arguments: Arguments, tolerance: float, report: Reporter) -> tuple[DeployedLayer, ...]:
    """Replace the layers of `model` with their fastest forms, in place; return one row per layer, in call order."""
    layers = {name: module for name, module in model.named_modules() if name and type(module) in LAYERS}
    reached: list[_Choice] = []

    def measured(choice: _Choice) -> None:
        reached.append(choice)
        report("layers", len(reached), len(layers))

    choices = [_Choice(name, layer, tolerance, measured) for name, layer in layers.items()]
    exchange(model, {choice.layer: choice for choice in choices})
    try:
        outputs_of(model, arguments)
    finally:
        exchange(model, {choice: choice.chosen for choice in choices})
    keep_features_first(model)
    return tuple(choice.row for choice in [*reached, *(each for each in choices if each not in reached)])


class _Choice(nn.Module):
    """A layer that times its forms in the first call, and uses the fastest one from then on."""

    def __init__(self, name: str, layer: Any, tolerance: float, measured: Callable[["_Choice"], None]) -> None:
        super().__init__()
        row = row_of(name, layer, note="not reached by the example")
        # Not registered as submodules, so that `exchange` replaces the layer in the network and not here.
        vars(self).update(name=name, layer=layer, tolerance=tolerance, measured=measured, chosen=layer, row=row)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as torch's layers call it
        """Return the output of the chosen form."""
        if not self.row.times:
            chosen, row = _fastest(self.name, self.layer, input, self.tolerance)
            vars(self).update(chosen=chosen, row=row)
            self.measured(self)
        result: Tensor = self.chosen(input)
        return result

    def __getattr__(self, name: str) -> Any:  # a parent module may read the weight instead of calling this one
        return getattr(vars(self)["layer"], name)


def row_of(name: str, layer: Layer, **fields: Any) -> DeployedLayer:
    """Return the row of a dense layer."""
    weight = layer.weight
    density = int(weight.count_nonzero()) / max(1, weight.numel())
    return DeployedLayer(name, tuple(weight.shape), density, DENSE, **fields)


def _fastest(name: str, layer: Layer, x: Tensor, tolerance: float) -> tuple[nn.Module, DeployedLayer]:
    forms, note = forms_of(name, layer)
    expected = [layer(x)]
    notes = [note] if note else []
    for form, module in list(forms.items()):
        if (gap := difference([module(x)], expected)) > tolerance:
            del forms[form]
            notes.append(f"{form}: outputs differ by {gap:.1e}")
    calls = {form: partial(module, x) for form, module in forms.items()}
    times = seconds_in_turn(calls, x.device, block=_BLOCK, rounds=_ROUNDS)
    dense = _dense(times, x)
    best = min(times, key=times.__getitem__)
    form = best if times[best] < _MARGIN * times[dense] else dense
    fastest_dense = min(seconds for form, seconds in times.items() if form in (DENSE, CHANNELS_LAST))
    slower = [each for each in times if form == dense and each not in (DENSE, CHANNELS_LAST)]
    notes += [f"{each} takes {times[each] / fastest_dense:.2f}x the time" for each in slower]
    row = row_of(name, layer, times=times, ratio=fastest_dense / times[form], note="; ".join(notes))
    return forms[form], DeployedLayer(**vars(row) | {"form": form})


def _dense(times: dict[str, float], x: Tensor) -> str:
    """Return the default form: dense, in the memory format of the inputs unless the other format is faster."""
    if CHANNELS_LAST not in times:
        return DENSE
    last = not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
    same, other = (CHANNELS_LAST, DENSE) if last else (DENSE, CHANNELS_LAST)
    return other if times[other] < _MARGIN * times[same] else same


def keep_features_first(model: nn.Module) -> None:
    """Have EntriesLinear layers store their outputs features first if only other EntriesLinear layers read them."""
    if not isinstance(model, fx.GraphModule):
        return
    for name, calls in calls_of(model).items():
        module = model.get_submodule(name)
        if isinstance(module, EntriesLinear):
            module.features_first = all(_is_read_by_entries(model, call) for call in calls)


def _is_read_by_entries(model: fx.GraphModule, node: fx.Node) -> bool:
    return bool(node.users) and all(_reads_features_first(model, user) for user in node.users)


def _reads_features_first(model: fx.GraphModule, node: fx.Node) -> bool:
    module = model.get_submodule(str(node.target)) if node.op == "call_module" else None
    if isinstance(module, EntriesLinear):
        return True
    return is_pointwise(node, module) and _is_read_by_entries(model, node)
