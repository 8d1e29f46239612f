"""Register the products with a kind of sparse matrix as torch operators.

A kind has three operators: ``linear(x, values, bias, *index)`` is ``x @ weight.T + bias``, ``input_grad(grad, values,
*index)`` is ``grad @ weight``, and ``weight_grad(grad, x, *index)`` holds the active entries of ``grad.T @ x``. Each is
linear in each of its two tensors, and the transposes of these maps are the other two operators: so they have gradients
of every order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

Operator = Callable[..., Tensor]


@dataclass(frozen=True)
class Kind:
    """The functions of a kind: the computations, and "fake" ones that return empty results of the right shapes.

    Attributes:
        index: the index arguments of the entries, as in the schema of an operator.
        devices: torch dispatch keys.
        laid_out: returns samples in the memory layout that the products read; applied once to what two products read.
        features: the dimension of samples that holds features; the others are positions.
    """

    name: str
    index: str
    devices: Sequence[str]
    linear: Operator
    input_grad: Operator
    weight_grad: Operator
    fake_linear: Operator
    fake_input_grad: Operator
    fake_weight_grad: Operator
    laid_out: Callable[[Tensor], Tensor] = lambda x: x
    features: int = -1

    def operator(self, name: str) -> Any:
        """Return an operator of this kind."""
        return getattr(torch.ops.orthosparse, f"{self.name}_{name}")


def linear(kind: Kind, x: Tensor, values: Tensor, bias: Tensor | None, *index: Any) -> Tensor:
    """Return ``x @ weight.T + bias``: through the operator if operators are traced or counted, else directly."""
    if not is_direct(x):
        return kind.operator("linear")(x, values, bias, *index)  # type: ignore[no-any-return]
    if torch.is_inference_mode_enabled():  # no gradients in either direction; no_grad() keeps those of forward mode
        return kind.linear(x, values, bias, *index)
    return _Direct.apply(kind, x, values, bias, *index)  # type: ignore[no-any-return,no-untyped-call]


class _Direct(torch.autograd.Function):
    """The product and its gradients, without torch's dispatcher."""

    @staticmethod
    def forward(ctx: Any, kind: Kind, x: Tensor, values: Tensor, bias: Tensor | None, *index: Any) -> Tensor:
        ctx.save_for_backward(x, values)
        ctx.kind, ctx.index = kind, index
        result = kind.linear(x, values, bias, *index)
        if not result._is_view():
            return result
        # The same memory in a tensor that is no view: autograd lets no activation change a view from here in place.
        layout = result.storage_offset(), result.shape, result.stride()
        return result.new_empty(0).set_(result.untyped_storage(), *layout)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kind, need = ctx.kind, ctx.needs_input_grad
        input_grad, weight_grad = kind.input_grad, kind.weight_grad
        if torch.is_grad_enabled() or _is_watched():  # to be differentiated again, or counted
            input_grad, weight_grad = kind.operator("input_grad"), kind.operator("weight_grad")
        return None, *_gradients(ctx, kind, grad, need[1:], input_grad, weight_grad)


def is_direct(x: Tensor) -> bool:
    """Whether to bypass torch's dispatcher, which takes longer than many kernels: no one traces or counts operators."""
    plain = type(x) in (Tensor, nn.Parameter) and not x.is_meta
    traced = torch.compiler.is_compiling() or torch._C._is_tracing()
    return plain and not traced and not _is_watched()


def _is_watched() -> bool:
    """Whether a torch dispatch mode is active."""
    return bool(torch._C._len_torch_dispatch_stack())


def _gradients(
    ctx: Any, kind: Kind, grad: Tensor, need: tuple[bool, ...], input_grad: Operator, weight_grad: Operator
) -> tuple[Tensor | None, ...]:
    """Return the gradients of ``linear(x, values, bias, *index)``."""
    (x, values), index = ctx.saved_tensors, ctx.index
    grad = kind.laid_out(grad)
    return (
        input_grad(grad, values, *index) if need[0] else None,
        weight_grad(grad, x, *index) if need[1] else None,
        _bias_grad(grad, kind.features) if need[2] else None,
        *[None] * len(index),
    )


def _bias_grad(grad: Tensor, features: int) -> Tensor:
    """Return the sum over all positions."""
    positions = [side for side in range(grad.dim()) if side != features % grad.dim()]
    return grad.sum(positions) if positions else grad


_library = torch.library.Library("orthosparse", "FRAGMENT")


def register(kind: Kind) -> None:
    """Define the three operators of a kind, with gradients, fake implementations and FLOP formulas."""
    _define(kind, "linear", "Tensor x, Tensor values, Tensor? bias", kind.linear, kind.fake_linear)
    _define(kind, "input_grad", "Tensor grad, Tensor values", kind.input_grad, kind.fake_input_grad)
    _define(kind, "weight_grad", "Tensor grad, Tensor x", kind.weight_grad, kind.fake_weight_grad)
    _differentiate(kind)
    _count_flops(kind)


def _define(kind: Kind, name: str, arguments: str, function: Operator, fake: Operator) -> None:
    full = f"{kind.name}_{name}"
    _library.define(f"{full}({arguments}, {kind.index}) -> Tensor")
    for device in kind.devices:
        _library.impl(full, function, device)
    torch.library.register_fake(f"orthosparse::{full}", fake, lib=_library)


def _differentiate(kind: Kind) -> None:
    linear, input_grad, weight_grad = (kind.operator(name) for name in ("linear", "input_grad", "weight_grad"))

    def of_linear(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _gradients(ctx, kind, grad, ctx.needs_input_grad, input_grad, weight_grad)

    def of_input_grad(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (g, values), index = ctx.saved_tensors, ctx.index
        need = ctx.needs_input_grad
        return (
            linear(grad, values, None, *index) if need[0] else None,
            weight_grad(g, grad, *index) if need[1] else None,
            *[None] * len(index),
        )

    def of_weight_grad(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (g, x), index = ctx.saved_tensors, ctx.index
        need = ctx.needs_input_grad
        return (
            linear(x, grad, None, *index) if need[0] else None,
            input_grad(g, grad, *index) if need[1] else None,
            *[None] * len(index),
        )

    for name, backward, factors in (
        ("linear", of_linear, 3),  # x, values and the bias, which the gradients do not need
        ("input_grad", of_input_grad, 2),
        ("weight_grad", of_weight_grad, 2),
    ):
        full = f"orthosparse::{kind.name}_{name}"
        keep = partial(_keep, factors=factors)
        torch.library.register_autograd(full, backward, setup_context=keep, lib=_library)


def check_factors(x: Tensor, values: Tensor, *, inputs: int) -> None:
    """Raise unless samples fit a weight: the operators themselves would read past their end.

    Raises:
        ValueError: `x` has another number of features than the weight expects, or another device.
        TypeError: `x` has another dtype than the weight, outside of autocast.
    """
    if not x.dim() or x.shape[-1] != inputs:
        raise ValueError(f"x: expected shape [..., {inputs}], the inputs of the weight; got {tuple(x.shape)}")
    check_like(x, values)


def check_like(x: Tensor, values: Tensor) -> None:
    """Raise unless samples have the dtype and the device of a weight.

    Raises:
        ValueError: the devices differ.
        TypeError: the dtypes differ, outside of autocast.
    """
    if x.device != values.device:
        raise ValueError(f"x: expected the device of the weight, {values.device}; got {x.device}")
    if x.dtype != values.dtype and not under_autocast(x):
        raise TypeError(f"x: expected the type of the weight, {values.dtype}; got {x.dtype}")


def matrix(x: Tensor) -> Tensor:
    """Return ``[..., features]`` as ``[rows, features]``."""
    return x if x.dim() == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor, *, factors: int) -> None:
    """Save the first two inputs, and the index beside them: DDP writes to buffers, the same values, in every pass."""
    del output
    ctx.save_for_backward(*inputs[:2])
    ctx.index = inputs[factors:]


def _count_flops(kind: Kind) -> None:
    """Register two FLOPs per value and position of the results, for all three operators."""

    def flops(shape: Any, values_shape: Any) -> int:
        positions = [side for number, side in enumerate(shape) if number != kind.features % len(shape)]
        return int(2 * math.prod(positions) * math.prod(values_shape))

    @register_flop_formula(kind.operator("linear"))
    def _(x_shape: Any, values_shape: Any, *rest: Any, out_shape: Any = None, **others: Any) -> int:
        del x_shape, rest, others
        return flops(out_shape, values_shape)

    @register_flop_formula(kind.operator("input_grad"))
    def _(grad_shape: Any, values_shape: Any, *rest: Any, out_shape: Any = None, **others: Any) -> int:
        del rest, out_shape, others
        return flops(grad_shape, values_shape)

    @register_flop_formula(kind.operator("weight_grad"))
    def _(grad_shape: Any, *rest: Any, out_shape: Any = None, **others: Any) -> int:
        del rest, others
        return flops(grad_shape, out_shape)


def under_autocast(x: Tensor) -> bool:
    """Whether autocast is enabled on the device of a tensor; the meta device has none."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def without_autocast(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make `function`, whose first argument is a tensor, compute in the dtype of its arguments under autocast too."""

    @wraps(function)
    def run(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not under_autocast(x):
            return function(x, *args, **kwargs)
        with torch.autocast(x.device.type, enabled=False):
            return function(x, *args, **kwargs)

    return run


def cast(dtype: torch.dtype, *tensors: Tensor | None) -> list[Any]:
    """Return the tensors in `dtype`; float64 is kept, as under autocast."""
    return [each if each is None or each.dtype == torch.float64 else each.to(dtype) for each in tensors]
