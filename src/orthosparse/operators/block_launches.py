"""Launches of the block-sparse GPU kernels, with sizes that are measured at the first call of each kind."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from orthosparse.operators.block_plan import GROUPS, tables_of
from orthosparse.operators.tuning import fastest


class Config(NamedTuple):
    """How a kernel is launched: tokens and inner width of a tile, warps, stages, and shares of the tokens."""

    tokens: int
    inner: int
    warps: int
    stages: int
    shares: int = 1


# The first of each runs on any GPU; the others are those that won on an H200, by size of blocks, type and shape.
_PRODUCT = (
    Config(64, 32, 4, 2),
    Config(128, 64, 4, 3),
    Config(128, 64, 8, 3),
)
_WEIGHT_GRAD = (
    Config(32, 0, 4, 2, 1),
    Config(64, 0, 4, 3, 1),
    Config(64, 0, 4, 3, 4),
    Config(64, 0, 8, 3, 2),
    Config(64, 0, 8, 3, 8),
    Config(64, 0, 8, 4, 4),
)


def product(x: Tensor, values: Tensor, bias: Tensor | None, plan: Tensor, *, features: int, transposed: bool) -> Tensor:
    """Return ``x @ weight.T + bias``, or ``x @ weight`` if `transposed`, with `features` columns; `x` is a matrix."""
    x = x if x.stride(1) == 1 else x.contiguous()
    y = torch.empty(len(x), features, dtype=x.dtype, device=x.device)
    blocks, size, _ = values.shape
    sides = features // size, x.shape[1] // size
    tables = tables_of(plan, blocks=blocks, grid=sides[::-1] if transposed else sides, size=size)
    if transposed:
        starts, others, order = tables.column_starts, tables.column_rows, tables.by_column
    else:
        starts, others, order = tables.row_starts, tables.columns, tables.columns

    def launch(config: Config) -> None:
        programs = -(-len(x) // config.tokens) * sides[0]
        _kernels().block_product[(programs,)](
            x, values, values if bias is None else bias, y, starts, others, order,
            len(x), sides[0], x.stride(0), y.stride(0),
            TRANSPOSED=transposed, BIAS=bias is not None, BLOCK=size, INNER=min(size, config.inner),
            TOKENS=config.tokens, PRECISION=precision(), STAGES=config.stages, num_warps=config.warps,
        )  # fmt: skip

    if y.numel():
        configs = _distinct(_PRODUCT, size)
        launch(fastest(_key("transposed" if transposed else "product", x, values, sides), configs, launch))
    return y


def weight_grad(grad: Tensor, x: Tensor, plan: Tensor, *, blocks: int, size: int) -> Tensor:
    """Return the active blocks of ``grad.T @ x``, both matrices."""
    grad, x = (each if each.stride(1) == 1 else each.contiguous() for each in (grad, x))
    sides = grad.shape[1] // size, x.shape[1] // size
    tables = tables_of(plan, blocks=blocks, grid=sides, size=size)
    dtype = torch.float32  # of sums over a share of the tokens

    def launch(config: Config) -> Tensor:
        shares = max(1, min(config.shares, len(x) // config.tokens))
        share = -(-len(x) // (shares * config.tokens)) * config.tokens
        out = torch.empty(shares, blocks, size, size, dtype=x.dtype if shares == 1 else dtype, device=x.device)
        _kernels().block_weight_grad[(len(tables.groups) * shares,)](
            grad, x, out, tables.groups, tables.rows, tables.columns, tables.row_starts,
            len(x), len(tables.groups), blocks, share, grad.stride(0), x.stride(0),
            BLOCK=size, GROUP=GROUPS[size], TOKENS=config.tokens, PRECISION=precision(), STAGES=config.stages,
            num_warps=config.warps,
        )  # fmt: skip
        return out[0] if shares == 1 else out.sum(0).to(x.dtype)

    if not blocks:
        return torch.empty(0, size, size, dtype=x.dtype, device=x.device)
    key = _key("weight_grad", x, torch.empty(blocks, size, size, device="meta"), sides)
    return launch(fastest(key, _WEIGHT_GRAD, launch))


def precision() -> str:
    """Return how the GPU multiplies float32: as torch does in its own products."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def _distinct(configs: tuple[Config, ...], size: int) -> list[Config]:
    """The configs that differ for blocks of this size, in their order."""
    return list(dict.fromkeys(config._replace(inner=min(size, config.inner)) for config in configs))


def _key(kind: str, x: Tensor, values: Tensor, sides: tuple[int, int]) -> tuple[object, ...]:
    """What a choice is kept by: numbers of tokens and blocks by powers of two."""
    counts = len(x).bit_length(), values.shape[0].bit_length()
    return kind, x.device, x.dtype, values.shape[1], sides, counts, precision()


def _kernels() -> Any:
    """The kernels; Triton takes a while to import, and is not there everywhere."""
    from orthosparse.operators import block_kernels

    return block_kernels
