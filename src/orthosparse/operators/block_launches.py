"""Launch the block-sparse GPU kernels, with tile sizes that are tuned at the first call of each kind."""

from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from orthosparse.operators.block_plan import GROUPS
from orthosparse.operators.tuning import chosen, fastest


class Config(NamedTuple):
    """How a kernel is launched: tokens and inner width of a tile, warps, stages, and shares of the tokens.

    With `tma`, the tensor memory accelerator of Hopper and later GPUs copies the tiles.
    """

    tokens: int
    inner: int
    warps: int
    stages: int
    shares: int = 1
    tma: bool = False


# The first of each runs on any GPU, and under torch.use_deterministic_algorithms: a choice by time may differ from run
# to run, and sums in another order differ in the last bit. Each of the others was the fastest on an H200 for some block
# size, dtype and shape.
_PRODUCT = (
    Config(64, 32, 4, 2),
    Config(128, 64, 4, 3),
    Config(128, 64, 8, 3),
    Config(256, 64, 8, 3),
    Config(128, 64, 4, 3, tma=True),
    Config(256, 64, 8, 4, tma=True),
)
_WEIGHT_GRAD = (
    Config(32, 0, 4, 2, 1),
    Config(64, 0, 4, 3, 1),
    Config(64, 0, 4, 3, 4),
    Config(64, 0, 8, 3, 2),
    Config(64, 0, 8, 3, 8),
    Config(64, 0, 8, 4, 4),
    Config(64, 0, 4, 4, 1, tma=True),
    Config(64, 0, 4, 4, 4, tma=True),
    Config(64, 0, 8, 4, 1, tma=True),
    Config(64, 0, 8, 4, 2, tma=True),
)
_deterministic = torch.are_deterministic_algorithms_enabled
_empty = torch.empty
_LENGTH = 1024  # numbers that one program of add_shares writes


def product(x: Tensor, values: Tensor, bias: Tensor | None, plan: Tensor, *, features: int, transposed: bool) -> Tensor:
    """Return ``x @ weight.T + bias``, or ``x @ weight`` if `transposed`, with `features` columns; `x` is a matrix."""
    if x.stride(1) != 1:
        x = x.contiguous()
    tokens, inputs = x.shape
    blocks, size, _ = values.shape
    dtype = x.dtype
    y = _empty((tokens, features), dtype=dtype, device=x.device)
    if not tokens:
        return y
    precision = "tf32" if dtype is not torch.float32 else float32_precision()
    tma = _has_tma(x, values) if blocks else False
    # Numbers of tokens and blocks enter as powers of two: sizes that are nearly the same share a choice.
    key = (
        transposed, dtype, x.get_device(), size, features, inputs, tokens.bit_length(), blocks.bit_length(), precision,
        tma,
    )  # fmt: skip
    launch = partial(_product, x, values, bias, y, plan, transposed, precision)
    config = None if _deterministic() else chosen.get(key)
    if config is None:
        configs = _product_configs(size, tma)
        config = configs[0] if _deterministic() else fastest(key, configs, launch)
    launch(config)
    return y


def _product(
    x: Tensor, values: Tensor, bias: Tensor | None, y: Tensor, plan: Tensor, transposed: bool, precision: str,
    config: Config,
) -> None:  # fmt: skip
    (tokens, inputs), features, (blocks, size, _) = x.shape, y.shape[1], values.shape
    strips, others = features // size, inputs // size
    tile, inner, warps, stages, _, tma = config
    kernels, samples, weight = _kernels(), x, values
    if tma:
        samples = kernels.TensorDescriptor(x, x.shape, x.stride(), [tile, inner])
        box = [inner, size] if transposed else [size, inner]
        weight = kernels.TensorDescriptor(values, [blocks * size, size], [size, 1], box)
    kernels.block_product[(-(-tokens // tile) * strips,)](
        samples, weight, values if bias is None else bias, y, plan, tokens,
        others if transposed else strips, strips if transposed else others, blocks, x.stride(0),
        tma, transposed, bias is not None, tokens % tile == 0, size, inner, tile, precision, stages, num_warps=warps,
    )  # fmt: skip


def weight_grad(grad: Tensor, x: Tensor, plan: Tensor, *, blocks: int, size: int) -> Tensor:
    """Return the active blocks of ``grad.T @ x``, both matrices."""
    if grad.stride(1) != 1:
        grad = grad.contiguous()
    if x.stride(1) != 1:
        x = x.contiguous()
    (tokens, inputs), features, dtype = x.shape, grad.shape[1], x.dtype
    if not blocks:
        return _empty((0, size, size), dtype=dtype, device=x.device)
    precision = "tf32" if dtype is not torch.float32 else float32_precision()
    tma = GROUPS[size] == 2 and tokens > 0 and _has_tma(x, grad)
    key = (
        None, dtype, x.get_device(), size, features, inputs, tokens.bit_length(), blocks.bit_length(), precision, tma,
    )  # fmt: skip
    launch = partial(_weight_grad, grad, x, plan, blocks, size, precision)
    config = None if _deterministic() else chosen.get(key)
    if config is None:
        configs = _weight_grad_configs(size, tma, precision)
        config = configs[0] if _deterministic() else fastest(key, configs, launch)
    return launch(config)


def _weight_grad(
    grad: Tensor, x: Tensor, plan: Tensor, blocks: int, size: int, precision: str, config: Config
) -> Tensor:
    (tokens, inputs), rows, group = x.shape, grad.shape[1] // size, GROUPS[size]
    tile, _, warps, stages, shares, tma = config
    shares = max(1, min(shares, tokens // tile))
    share = -(-tokens // (shares * tile)) * tile
    groups = blocks // group + rows
    # Sums over a share of the tokens stay in float32 until they are added.
    out = _empty((shares, blocks, size, size), dtype=x.dtype if shares == 1 else torch.float32, device=x.device)
    kernels, numbers = _kernels(), (tokens, rows, inputs // size, blocks, groups, share)
    if tma:
        pair = [kernels.TensorDescriptor(each, each.shape, each.stride(), [tile, size]) for each in (grad, x)]
        kernels.block_pair_weight_grad[(groups * shares,)](
            *pair, out, plan, *numbers, size, tile, precision, stages, num_warps=warps
        )
    else:
        kernels.block_weight_grad[(groups * shares,)](
            grad, x, out, plan, *numbers, grad.stride(0), x.stride(0),
            tokens % tile == 0, size, group, tile, precision, stages, num_warps=warps,
        )  # fmt: skip
    if shares == 1:
        return out[0]
    total = _empty((blocks, size, size), dtype=x.dtype, device=x.device)
    kernels.add_shares[(-(-total.numel() // _LENGTH),)](out, total, total.numel(), shares, _LENGTH, num_warps=4)
    return total


def _has_tma(*matrices: Tensor) -> bool:
    """Whether the tensor memory accelerator can copy tiles of the matrices: 16-bit, with rows aligned to 16 bytes."""
    return all(
        each.dtype.itemsize == 2 and each.stride(0) >= each.shape[-1] and not each.stride(0) % 8
        and not each.data_ptr() % 16 for each in matrices
    ) and _is_hopper(matrices[0].device)  # fmt: skip


@cache
def _is_hopper(device: torch.device) -> bool:
    """Whether a GPU is of NVIDIA's Hopper generation or later; also true if kernels are interpreted."""
    return device.type == "cpu" or (torch.version.hip is None and torch.cuda.get_device_capability(device)[0] >= 9)


def float32_precision() -> str:
    """Return the precision of float32 products on the GPU, as set in torch."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


@cache
def _product_configs(size: int, tma: bool) -> list[Config]:
    """Return the configs for blocks of this size, without duplicates."""
    fitting = [config._replace(inner=min(size, config.inner)) for config in _PRODUCT if tma or not config.tma]
    return list(dict.fromkeys(fitting))


@cache
def _weight_grad_configs(size: int, tma: bool, precision: str) -> list[Config]:
    """Return the configs for blocks of this size."""
    if size == 128 and precision == "ieee":  # without tensor cores; larger tiles take minutes to compile
        return [Config(16, 0, 8, 2, 1), Config(16, 0, 8, 2, 4)]
    return [config for config in _WEIGHT_GRAD if tma or not config.tma]


@cache
def _kernels() -> Any:
    """Import the kernels: Triton is slow to import, and not always installed."""
    from orthosparse.operators import block_kernels

    return block_kernels
