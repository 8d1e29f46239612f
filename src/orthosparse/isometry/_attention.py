"""Attention as sums of products that never cancel, for the paths through it (see `_surrogates`)."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Flag = Callable[[Tensor], Tensor]

CLOSED = -50.0  # an added constant below it closes an attention score (Swin adds -100, others -1e4 or -inf)


def _attention(
    flag: Flag,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **kwargs: Any,
) -> Tensor:
    del dropout_p
    if kwargs.get("enable_gqa"):
        share = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(share, -3), value.repeat_interleave(share, -3)
    weights = 1 + flag(query @ key.mT)
    if is_causal:
        weights = weights.tril()
    if attn_mask is not None:
        weights = weights * (attn_mask if attn_mask.dtype == torch.bool else attn_mask > CLOSED)
    return flag(weights @ value)


def _multi_head(flag: Flag, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """`functional.multi_head_attention_forward`; tokens first, then the batch where there is one."""
    bound = inspect.signature(functional.multi_head_attention_forward).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    heads, tokens = given["num_heads"], [given["query"], given["key"], given["value"]]
    if given["use_separate_proj_weight"]:
        matrices = [given["q_proj_weight"], given["k_proj_weight"], given["v_proj_weight"]]
    else:
        matrices = list(given["in_proj_weight"].chunk(3))
    biases = [None] * 3 if given["in_proj_bias"] is None else given["in_proj_bias"].chunk(3)
    split = [
        flag(functional.linear(x, w, b)).unflatten(-1, (heads, -1)).movedim(0, -2)
        for x, w, b in zip(tokens, matrices, biases, strict=True)
    ]  # [(batch,) heads, tokens, size]
    mask = _allowed(given["attn_mask"], heads, split[0])
    padding = _allowed(given["key_padding_mask"], heads, split[0])
    if padding is not None:
        padding = padding[..., None, None, :]
        mask = padding if mask is None else mask & padding
    query, key, value = split
    mixed = _attention(flag, query, key, value, mask)
    merged = mixed.movedim(-2, 0).flatten(-2)
    return flag(functional.linear(merged, given["out_proj_weight"], given["out_proj_bias"])), None


def _allowed(mask: Tensor | None, heads: int, query: Tensor) -> Tensor | None:
    """A mask of attention or padding (True, or very negative, closes) as one that opens where it is True."""
    if mask is None:
        return None
    opened: Tensor = ~mask if mask.dtype == torch.bool else mask > CLOSED
    if opened.dim() == 3 and query.dim() == 4:  # [batch * heads, tokens, tokens]
        opened = opened.unflatten(0, (-1, heads))
    return opened


RULES: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head,
}
