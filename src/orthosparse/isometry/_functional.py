"""A model as a function of one tensor: the arguments are checked, and the evaluation leaves the model unchanged."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from orthosparse.checks import check_mapping, named_on_error
from orthosparse.layers import Layer, find_layers, unwrapped
from orthosparse.substitution import copied, frozen_state, preserve, seed_generators, substituted, without_cudnn
from orthosparse.twice import twice_differentiable

Output: TypeAlias = Callable[[Any], Tensor] | str | int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An evaluation of a model.

    Attributes:
        x: the input, as a leaf.
        y: the output, a differentiable function of `x`.
        widest: number of elements of the largest tensor that a module returned."""

    x: Tensor
    y: Tensor
    widest: int


def check_input(x: Tensor) -> None:
    """Raise unless `x` is a floating-point tensor with at least one sample in it.

    Raises:
        TypeError: not a floating-point tensor.
        ValueError: no sample, empty samples, or a tensor on the meta device.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"x: expected a floating-point tensor; got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(
            f"x: expected a floating-point tensor; got {x.dtype}. "
            "A model of integers (tokens) has no Jacobian there: pass a module that starts at its embeddings"
        )
    if x.dim() == 0 or x.numel() == 0:
        raise ValueError(f"x: expected a batch of at least one sample; got shape {tuple(x.shape)}")
    if x.is_meta:
        raise ValueError("x: expected a tensor with data; got one on the meta device")


def layers_of(model: nn.Module, layers: Mapping[str, Layer] | None) -> dict[str, Layer]:
    """Return `layers`, or all that `find_layers` finds if it is None."""
    if layers is None:
        return find_layers(model)
    check_mapping("layers", layers, Layer)
    if not layers:
        raise ValueError("layers: expected at least one layer, or None for all; got none")
    return dict(layers)


@contextmanager
def evaluated(
    model: nn.Module,
    x: Tensor,
    *,
    seed: int,
    form: AbstractContextManager[Any],
    output: Output | None = None,
    through: str | None = None,
) -> Iterator[Evaluation]:
    """Yield a new leaf equal to `x` and the output of the model; they can be differentiated twice inside the block.

    Parameters are constants, buffers are copies, and the random state is restored: the model does not change, even if
    it recomputes layers in the backward pass.

    Args:
        seed: seeds the random numbers of the model itself, for example of dropout.
        form: context that is active during the forward pass.
        output: which tensor to use of what the model (or `through`) returns: a callable, a key or attribute, an index.
        through: name of the module whose output is used instead of the model's.
    """
    check_input(x)
    model = unwrapped(model)
    with untraced(model, x.device, seed), substituted(model, frozen_state(model)):
        leaf = x.detach().clone().requires_grad_()
        entry = leaf.clone()  # not a leaf, so that an in-place change is detected here instead of failing inside torch
        with _captured(model, through) as seen, form, named_on_error("x"):
            result = model(entry)
        if entry._version:
            raise ValueError(
                "model: changes its input in place, so the Jacobian at x is not the one of model(x); clone it"
            )
        if through is not None:
            result = seen.only_result(through)
        yield Evaluation(leaf, _checked(picked(result, output), len(x)), seen.widest)


@contextmanager
def untraced(model: nn.Module, device: torch.device, seed: int | None = None) -> Iterator[None]:
    """Allow differentiating twice whatever the surrounding modes, and restore the model and random states at the end.

    Args:
        seed: seeds the global generators inside the block, which dropout draws from.
    """
    if device.type == "meta":
        raise ValueError("model: expected a model and an input with data; got the meta device")
    with torch.inference_mode(False), preserve(model, device), without_cudnn(model), twice_differentiable():
        if seed is not None:
            seed_generators(model, seed, device)
        yield


class _Seen:
    """What the forward hooks collect: the results of one module, and the size of the largest tensor of all modules."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.widest = 1

    def measure(self, module: nn.Module, args: Any, result: Any) -> None:
        del module, args
        self.widest = max(self.widest, result.numel() if isinstance(result, Tensor) else 1)

    def only_result(self, name: str) -> Any:
        if len(self.results) != 1:
            raise ValueError(f"through: expected a module that runs once; {name!r} ran {len(self.results)} times")
        return self.results[0]

    def keep(self, module: nn.Module, args: Any, result: Any) -> None:
        del module, args
        self.results.append(copied(result))  # a later layer may change it in place


@contextmanager
def _captured(model: nn.Module, name: str | None) -> Iterator[_Seen]:
    modules = dict(model.named_modules(remove_duplicate=False))
    if name is not None and (not name or name not in modules):
        raise ValueError(f"through: expected the name of a module of this model; got {name!r}")
    seen = _Seen()
    hooks = [module.register_forward_hook(seen.measure) for module in model.modules()]
    if name is not None:
        hooks.append(modules[name].register_forward_hook(seen.keep))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def picked(result: Any, output: Output | None) -> Any:
    """Return the part of `result` that `output` selects."""
    if output is None:
        return result
    if callable(output):
        with named_on_error("output"):
            return output(result)
    try:
        if isinstance(output, str) and not isinstance(result, Mapping):
            return getattr(result, output)
        return result[output]
    except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"output: {output!r} is not in what the model returns, a {type(result).__name__}") from error


def _checked(y: Any, batch: int) -> Tensor:
    if not isinstance(y, Tensor):
        raise TypeError(
            f"model: expected its output to be a tensor; got {type(y).__name__}. Say which one with output=: "
            "a callable (output=lambda out: out.logits), a key or attribute (output='logits') or an index (output=0)"
        )
    if not y.is_floating_point():
        raise TypeError(f"model: expected a floating-point output; got {y.dtype}")
    if y.dim() == 0 or len(y) != batch or y.numel() == 0:
        raise ValueError(
            f"model: expected an output with the {batch} samples of x as its first side; got {tuple(y.shape)}. "
            "Bring them there with output=, e.g. output=lambda out: out.transpose(0, 1)"
        )
    if not y.requires_grad:
        raise ValueError("model: its output does not depend on x through differentiable operations (detach, no_grad?)")
    return y
