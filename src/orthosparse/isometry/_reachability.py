"""Find the weights on a path from the input to the output of a model, by differentiating a surrogate of it twice.

The surrogate network (see `_surrogates`) has ones for the active weights and only sums and products of non-negative
numbers. The sum R of all entries of its input-output Jacobian counts paths, so d R / d w > 0 exactly if a path leads
through w. Three passes run over the model's own graph: values forward, influence on the output backward, and, as the
derivative of that backward pass, dependence on the input forward again. In each, every layer resets the numbers to 0 or
1, so that they are flags and no count ever overflows or vanishes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from orthosparse.checks import named_on_error
from orthosparse.isometry._surrogates import RULES, is_signal
from orthosparse.substitution import substituted


def live_weights(
    model: nn.Module, x: Tensor, active: Mapping[str, Tensor], *, pick: Callable[[Any], Tensor]
) -> dict[str, Tensor]:
    """Return, for each parameter name of `active` (bool masks), which entries a path from input to output uses.

    Args:
        pick: returns the output tensor from the result of the model.
    """
    weights = {name: mask.to(x.device, torch.float32, copy=True).requires_grad_() for name, mask in active.items()}
    with substituted(model, _surroundings(model) | weights), _Surrogate(tokens=not x.is_floating_point()) as surrogate:
        source = x if surrogate.tokens else surrogate.source(x)
        with named_on_error("x"):
            result = model(source)
        y = pick(result)
    if not isinstance(y, Tensor):
        raise TypeError(f"output: expected a tensor of what the model returns; got {type(y).__name__}")
    if not surrogate.sources or not y.requires_grad:
        raise ValueError("model: its output does not depend on its input through differentiable operations")
    influence = torch.autograd.grad(y.sum(), surrogate.sources, create_graph=True, materialize_grads=True)
    paths = torch.stack([part.sum() for part in influence]).sum()
    surrogate.second = True
    if not paths.requires_grad:  # no path reaches the output
        return {name: torch.zeros_like(mask) for name, mask in active.items()}
    used = torch.autograd.grad(paths, list(weights.values()), materialize_grads=True)
    if not all(bool(torch.isfinite(part).all()) for part in used):
        raise ValueError(
            "model: one of its operations overflows in the surrogate network; effective_density cannot measure it"
        )
    return {name: (part > 0).to(mask.device) & mask for (name, mask), part in zip(active.items(), used, strict=True)}


def _surroundings(model: nn.Module) -> dict[str, Tensor]:
    """Return all other tensors as constants: ones for parameters (training leaves none at zero), |b| for buffers."""
    parameters = {
        name: torch.ones_like(value, dtype=torch.float32 if value.is_floating_point() else None, requires_grad=False)
        for name, value in model.named_parameters()
    }
    buffers = {
        name: value.detach().float().abs() if value.is_floating_point() else value.detach().clone()
        for name, value in model.named_buffers()
    }
    return parameters | buffers


class _Surrogate(TorchFunctionMode):
    """Runs a model with the surrogate rules.

    Attributes:
        tokens: whether the input is integers, so that the outputs of embeddings replace it.
        sources: the tensors that replace the input.
        second: True while the backward pass is differentiated.
    """

    def __init__(self, *, tokens: bool) -> None:
        super().__init__()
        self.tokens = tokens
        self.sources: list[Tensor] = []
        self.second = False

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        written = getattr(func, "__name__", "")
        name = written.strip("_")
        if name == "embedding" and self.tokens:
            embedded = func(*args, **kwargs)
            return embedded * self.source(embedded)
        rule = RULES.get(name)
        if rule is None or not any(map(is_signal, _flat([*args, *kwargs.values()]))):
            return func(*args, **kwargs)
        in_place = (written.endswith("_") and not written.startswith("__")) or written.startswith("__i")
        in_place |= bool(kwargs.pop("inplace", False))
        if not in_place:
            return rule(self.flag, *args, **kwargs)
        old = [each.clone() if is_signal(each) else each for each in args]  # which the backward pass may need
        return args[0].copy_(rule(self.flag, *old, **kwargs))

    def source(self, like: Tensor) -> Tensor:
        """Return ones in the shape of `like` that replace the input; a copy, which may be changed in place."""
        leaf = torch.ones(like.shape, dtype=torch.float32, device=like.device, requires_grad=True)
        self.sources.append(leaf)
        return leaf.clone()

    def flag(self, signal: Tensor) -> Tensor:
        """Return 1 where `signal` is positive, else 0, and do the same with its gradients."""
        flags = signal * _inverse(signal)
        if flags.requires_grad:
            flags.register_hook(self._flag_influence)
        return flags

    def _flag_influence(self, gradient: Tensor | None) -> Tensor | None:
        if gradient is None:  # torch knows that the gradient is zero
            return None
        if self.second:  # how values change the influence of others: not a path
            return torch.zeros_like(gradient)
        flags = gradient * _inverse(gradient)
        if flags.requires_grad:
            flags.register_hook(lambda dependence: (dependence > 0).to(dependence))
        return flags


def _inverse(signal: Tensor) -> Tensor:
    signal = signal.detach()
    return torch.where(signal > 0, signal.reciprocal(), 0.0)


def _flat(values: Sequence[Any]) -> list[Any]:
    return [part for value in values for part in (_flat(value) if isinstance(value, list | tuple) else [value])]
