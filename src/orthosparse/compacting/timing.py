"""Time the masked and the compact form of each layer, forward + backward, on the inputs that the layer gets."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.checks import check_arguments, named_on_error
from orthosparse.compacting.forms import Candidate, build
from orthosparse.compacting.table import MASKED
from orthosparse.stopwatch import seconds_in_turn
from orthosparse.substitution import copied, substituted

_SECONDS, _ROUNDS = 0.01, 5
Inputs = tuple[tuple[int, ...], torch.dtype]


def ratios_of(model: nn.Module, batch: Any, candidates: list[Candidate]) -> dict[str, float]:
    """Return the time of the masked form divided by that of the compact form, for each layer that has one.

    Gradients, buffers, modes and generators of the model are as before. Layers of the same sizes are timed once. A
    layer that the batch does not reach has no ratio.
    """
    wanted = [candidate for candidate in candidates if candidate.form != MASKED]
    seen = _inputs_of(model, batch, {candidate.module for candidate in wanted})
    known: dict[Any, float] = {}
    ratios = {}
    for candidate in wanted:
        inputs = seen.get(candidate.module, [])
        if not inputs:
            continue
        assert candidate.mask is not None
        weight = candidate.parameter
        layer = candidate.module.extra_repr()  # sizes, stride, bias
        key = (*inputs, candidate.form, layer, int(candidate.mask.count_nonzero()), weight.requires_grad)
        if key not in known:
            known[key] = _ratio(candidate, inputs)
        ratios[candidate.name] = known[key]
    return ratios


def _inputs_of(model: nn.Module, batch: Any, modules: set[nn.Module]) -> dict[nn.Module, list[Inputs]]:
    """Shape and type of every input that the modules get when the model runs on the batch."""
    seen: dict[nn.Module, list[Inputs]] = {}

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs.get("input")
        if isinstance(x, Tensor):
            seen.setdefault(module, []).append((tuple(x.shape), x.dtype))

    args, kwargs = check_arguments(batch, "batch")
    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in modules]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    devices = sorted({parameter.device.index for parameter in model.parameters() if parameter.is_cuda})
    try:
        with torch.no_grad(), torch.random.fork_rng(devices), substituted(model, buffers), named_on_error("batch"):
            model(*copied(args), **copied(kwargs))
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _ratio(candidate: Candidate, inputs: list[Inputs]) -> float:
    device, generator = candidate.parameter.device, torch.Generator().manual_seed(0)
    drawn = [(torch.randn(shape, generator=generator, device="cpu"), dtype) for shape, dtype in inputs]
    samples = [x.to(device, dtype).requires_grad_() for x, dtype in drawn]
    compact = build(candidate)
    steps = {
        "masked": _step(candidate.module, samples, candidate.parameter),
        "compact": _step(compact, samples, compact.values),
    }
    times = seconds_in_turn(steps, device, block=_SECONDS, rounds=_ROUNDS)
    return times["masked"] / times["compact"]


def _step(module: nn.Module, samples: list[Tensor], weight: Tensor) -> Callable[[], None]:
    def step() -> None:
        with torch.enable_grad():
            for x in samples:
                y = module.forward(x)  # without hooks
                wanted = [x, weight] if weight.requires_grad else [x]
                torch.autograd.grad(y, wanted, torch.ones_like(y))

    return step
