"""Products with block-sparse matrices, as torch operators that can be differentiated, compiled and exported.

A weight ``[outputs, inputs]`` is stored as its active blocks ``[blocks, size, size]``, row by row of the grid of
blocks, and a plan with their indices. On a GPU the operators launch Triton kernels in bfloat16, float16 and float32;
elsewhere, and in float64, they use `torch.bmm`.
"""

import os
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from orthosparse.operators import block_batched, block_launches
from orthosparse.operators.block_plan import GROUPS
from orthosparse.operators.block_plan import plan_of as plan_of
from orthosparse.operators.registration import Kind, cast, check_factors, linear, matrix, register, under_autocast

SIZES = tuple(GROUPS)
_KERNEL_TYPES = (torch.bfloat16, torch.float16, torch.float32)


def block_linear(x: Tensor, values: Tensor, bias: Tensor | None, plan: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return ``x @ weight.T + bias`` for a block-sparse weight; casts under autocast as ``F.linear`` does.

    Args:
        x: ``[..., inputs]``.
        values: the active blocks, ``[blocks, size, size]``, in the order of the plan.
        plan: the indices of the blocks, from `plan_of`.
        shape: (outputs, inputs) of the whole weight.
    """
    if under_autocast(x):
        x, values, bias = cast(torch.get_autocast_dtype(x.device.type), x, values, bias)
    check_factors(x, values, inputs=shape[1])
    blocks, size, _ = values.shape
    return linear(_KIND, x, values, bias, plan, blocks, size, *shape)


def has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether GPU kernels compute the products on this device and in this dtype."""
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
    y: Tensor = _backend(x).product(matrix(x), values.contiguous(), bias, plan, features=outputs, transposed=False)
    return y.view(*x.shape[:-1], outputs)


def _input_grad(
    grad: Tensor, values: Tensor, plan: Tensor, blocks: int, size: int, outputs: int, inputs: int
) -> Tensor:
    del blocks, size, outputs
    x: Tensor = _backend(grad).product(matrix(grad), values.contiguous(), None, plan, features=inputs, transposed=True)
    return x.view(*grad.shape[:-1], inputs)


def _weight_grad(grad: Tensor, x: Tensor, plan: Tensor, blocks: int, size: int, outputs: int, inputs: int) -> Tensor:
    del outputs, inputs
    result: Tensor = _backend(x).weight_grad(matrix(grad), matrix(x), plan, blocks=blocks, size=size)
    return result


def _backend(x: Tensor) -> Any:
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


_KIND = Kind(
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
register(_KIND)
