"""Convolutions and batch normalization in eval mode as linear maps, which makes J v as cheap as J^T u.

Torch differentiates the backward pass of a convolution with respect to all its inputs, which takes a second
convolution, and that of batch normalization in a dozen passes over memory. With constant weights both are affine: the
backward pass is the adjoint map, which depends on no activation, and its derivative is the map itself. Only the weight
is saved.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class LinearLayers(TorchFunctionMode):
    """While active, run convolutions and batch normalization in eval mode in that form, if their weights are fixed.

    Transposed, unbatched and "same"-padded convolutions keep torch's own form.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        linear = _LINEAR.get(func)  # by the function, not its name: two are called batch_norm
        result = None if linear is None else linear(*args, **kwargs)
        return func(*args, **kwargs) if result is None else result


def _convolved(
    sides: int,
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor | None:
    fixed = not weight.requires_grad and (bias is None or not bias.requires_grad)
    if isinstance(padding, str) or input.dim() != sides + 2 or not (fixed and input.requires_grad):
        return None
    geometry = [[side] * sides if isinstance(side, int) else list(side) for side in (stride, padding, dilation)]
    geometry = [part * sides if len(part) == 1 else part for part in geometry]
    convolved: Tensor = _Convolution.apply(input, weight, bias, *geometry, groups)  # type: ignore[no-untyped-call]
    return convolved


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        groups: int,
    ) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.geometry, ctx.groups, ctx.sizes = (stride, padding, dilation), groups, x.shape[2:]
        return torch.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (weight,), (stride, padding, dilation) = ctx.saved_tensors, ctx.geometry
        # The adjoint puts zeros at the pixels that the stride leaves over at the far edge.
        output_padding = [
            size - ((out - 1) * step - 2 * pad + gap * (side - 1) + 1)
            for size, out, side, step, pad, gap in zip(
                ctx.sizes, gradient.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True
            )
        ]
        adjoint = torch.convolution(gradient, weight, None, stride, padding, dilation, True, output_padding, ctx.groups)
        return adjoint, *[None] * 6


def _normalized(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    del momentum
    if training or running_mean is None or running_var is None or input.dim() < 2:
        return None
    constants = [each for each in (running_mean, running_var, weight, bias) if each is not None]
    precise = torch.promote_types(input.dtype, torch.float32)
    if {each.dtype for each in constants} not in ({input.dtype}, {precise}):
        return None  # torch raises for types that it does not mix
    scale = (running_var.to(precise) + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale
    shift = shift if bias is None else shift + bias
    shape = [1, -1, *[1] * (input.dim() - 2)]
    return (input * scale.view(shape) + shift.view(shape)).to(input.dtype)


def _normalized_by_torch(
    input: Tensor,  # noqa: A002
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor | None:
    """`torch.batch_norm`, which takes its arguments in another order than `functional.batch_norm`."""
    del cudnn_enabled
    return _normalized(input, running_mean, running_var, weight, bias, training, momentum, eps)


_LINEAR: dict[Any, Callable[..., Tensor | None]] = {
    torch.conv1d: partial(_convolved, 1),
    torch.conv2d: partial(_convolved, 2),
    torch.conv3d: partial(_convolved, 3),
    functional.batch_norm: _normalized,
    torch.batch_norm: _normalized_by_torch,
}
