"""Products with block-sparse matrices, as operators of torch: differentiable, compiled, exported.

A weight ``[outputs, inputs]`` is held as its active blocks ``[blocks, size, size]``, row by row of the grid of blocks,
and a plan that says where they lie. On a GPU the operators launch Triton kernels in bfloat16, float16 and float32;
elsewhere, and in float64, they are torch's batched products.
"""

import os
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.operators import block_batched, block_launches
from orthosparse.operators.block_plan import GROUPS
from orthosparse.operators.block_plan import plan_of as plan_of
from orthosparse.operators.registration import Kind, check_factors, matrix, register

SIZES = tuple(GROUPS)
_KERNEL_TYPES = (torch.bfloat16, torch.float16, torch.float32)


def block_linear(x: Tensor, values: Tensor, bias: Tensor | None, plan: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return ``x @ weight.T + bias`` for a block-sparse weight of a shape; like ``F.linear`` under autocast.

    Args:
        x: ``[..., inputs]``.
        values: the active blocks, in the order of the plan.
        plan: where they lie, from `plan_of`.
        shape: (outputs, inputs) of the whole weight.
    """
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(kind)
        x, values, bias = x.to(dtype), values.to(dtype), None if bias is None else bias.to(dtype)
    check_factors(x, values, inputs=shape[1])
    if _is_direct(x):
        return _Direct.apply(x, values, bias, plan, shape)  # type: ignore[no-any-return,no-untyped-call]
    blocks, size, _ = values.shape
    return torch.ops.orthosparse.block_linear(x, values, bias, plan, blocks, size, *shape)  # type: ignore[no-any-return]


class _Direct(torch.autograd.Function):
    """The same product without the way through torch's dispatcher, which takes longer than many a kernel."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, values: Tensor, bias: Tensor | None, plan: Tensor, shape: tuple[int, int]
    ) -> Tensor:
        ctx.save_for_backward(x, values)
        ctx.plan, ctx.shape = plan, shape
        blocks, size, _ = values.shape
        return _linear(x, values, bias, plan, blocks, size, *shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, values = ctx.saved_tensors
        need, index = ctx.needs_input_grad, (ctx.plan, *values.shape[:2], *ctx.shape)
        input_grad, weight_grad = _input_grad, _weight_grad
        if torch.is_grad_enabled():  # to be differentiated again
            input_grad, weight_grad = torch.ops.orthosparse.block_input_grad, torch.ops.orthosparse.block_weight_grad
        return (
            input_grad(grad, values, *index) if need[0] else None,
            weight_grad(grad, x, *index) if need[1] else None,
            matrix(grad).sum(0) if need[2] else None,
            None,
            None,
        )


def _is_direct(x: Tensor) -> bool:
    """Whether kernels may be launched at once: nobody traces or counts operators."""
    return (
        (x.is_cuda or _interpreted())
        and not torch.compiler.is_compiling()
        and type(x) in (Tensor, nn.Parameter)
        and not torch._C._len_torch_dispatch_stack()
    )


def has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products on this device and in this type are computed by GPU kernels."""
    return (device.type == "cuda" or _interpreted()) and dtype in _KERNEL_TYPES and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


@cache
def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def _linear(
    x: Tensor, values: Tensor, bias: Tensor | None, plan: Tensor, blocks: int, size: int, outputs: int, inputs: int
) -> Tensor:
    del blocks, size, inputs
    y: Tensor = _way(x).product(matrix(x), values.contiguous(), bias, plan, features=outputs, transposed=False)
    return y.view(*x.shape[:-1], outputs)


def _input_grad(
    grad: Tensor, values: Tensor, plan: Tensor, blocks: int, size: int, outputs: int, inputs: int
) -> Tensor:
    del blocks, size, outputs
    x: Tensor = _way(grad).product(matrix(grad), values.contiguous(), None, plan, features=inputs, transposed=True)
    return x.view(*grad.shape[:-1], inputs)


def _weight_grad(grad: Tensor, x: Tensor, plan: Tensor, blocks: int, size: int, outputs: int, inputs: int) -> Tensor:
    del outputs, inputs
    found: Tensor = _way(x).weight_grad(matrix(grad), matrix(x), plan, blocks=blocks, size=size)
    return found


def _way(x: Tensor) -> Any:
    gpu = x.is_cuda or _interpreted()
    return block_launches if gpu and x.dtype in _KERNEL_TYPES and _has_triton() else block_batched


def _fake_linear(x: Tensor, values: Tensor, bias: Tensor | None, plan: Tensor, *sizes: int) -> Tensor:
    del values, bias, plan
    return x.new_empty(*x.shape[:-1], sizes[2])


def _fake_input_grad(grad: Tensor, values: Tensor, plan: Tensor, *sizes: int) -> Tensor:
    del values, plan
    return grad.new_empty(*grad.shape[:-1], sizes[3])


def _fake_weight_grad(grad: Tensor, x: Tensor, plan: Tensor, *sizes: int) -> Tensor:
    del grad, plan
    return x.new_empty(sizes[0], sizes[1], sizes[1])


register(
    Kind(
        "block",
        "Tensor plan, int blocks, int size, int outputs, int inputs",
        ("CPU", "CUDA"),
        _linear,
        _input_grad,
        _weight_grad,
        _fake_linear,
        _fake_input_grad,
        _fake_weight_grad,
    )
)
