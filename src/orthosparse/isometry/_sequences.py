"""Attention and recurrent layers as sums of products that never cancel (see `_surrogates`)."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Flag = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]
Weights = Sequence[Tensor]
Step = Callable[[Flag, Tensor, State, Weights], State]

CLOSED = -50.0  # an added constant of at most this masks an attention score (Swin adds -100, others -1e4 or -inf)


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
    """`functional.multi_head_attention_forward`; tokens first, then the batch if there is one."""
    bound = inspect.signature(functional.multi_head_attention_forward).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    heads, tokens = arguments["num_heads"], [arguments["query"], arguments["key"], arguments["value"]]
    if arguments["use_separate_proj_weight"]:
        matrices = [arguments["q_proj_weight"], arguments["k_proj_weight"], arguments["v_proj_weight"]]
    else:
        matrices = list(arguments["in_proj_weight"].chunk(3))
    biases = [None] * 3 if arguments["in_proj_bias"] is None else arguments["in_proj_bias"].chunk(3)
    split = [
        flag(functional.linear(x, w, b)).unflatten(-1, (heads, -1)).movedim(0, -2)
        for x, w, b in zip(tokens, matrices, biases, strict=True)
    ]  # [(batch,) heads, tokens, size]
    mask = _allowed(arguments["attn_mask"], heads, split[0])
    padding = _allowed(arguments["key_padding_mask"], heads, split[0])
    if padding is not None:
        padding = padding[..., None, None, :]
        mask = padding if mask is None else mask & padding
    query, key, value = split
    mixed = _attention(flag, query, key, value, mask)
    merged = mixed.movedim(-2, 0).flatten(-2)
    return flag(functional.linear(merged, arguments["out_proj_weight"], arguments["out_proj_bias"])), None


def _allowed(mask: Tensor | None, heads: int, query: Tensor) -> Tensor | None:
    """Return a mask of attention or padding (True, or very negative, masks) as one that is True where allowed."""
    if mask is None:
        return None
    allowed: Tensor = ~mask if mask.dtype == torch.bool else mask > CLOSED
    if allowed.dim() == 3 and query.dim() == 4:  # [batch * heads, tokens, tokens]
        allowed = allowed.unflatten(0, (-1, heads))
    return allowed


def _gates(flag: Flag, x: Tensor, h: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    """Return the contributions of input and state to the gates; `weights` are two matrices, then their biases."""
    biases = (weights[2], weights[3]) if len(weights) >= 4 else (None, None)
    return flag(functional.linear(x, weights[0], biases[0])), flag(functional.linear(h, weights[1], biases[1]))


def _lstm_step(flag: Flag, x: Tensor, state: State, weights: Weights) -> State:
    h, c = state
    i, f, g, o = sum(_gates(flag, x, h, weights)).chunk(4, -1)  # type: ignore[union-attr]
    c = flag((1 + f) * c + (1 + i) * g)
    h = flag((1 + o) * c)
    projected = len(weights) in (3, 5)
    return (flag(functional.linear(h, weights[-1])) if projected else h), c


def _gru_step(flag: Flag, x: Tensor, state: State, weights: Weights) -> State:
    (h,) = state
    (xr, xz, xn), (hr, hz, hn) = (part.chunk(3, -1) for part in _gates(flag, x, h, weights))
    new = flag(xn + (1 + xr + hr) * hn)
    return (flag((1 + xz + hz) * (new + h)),)


def _plain_step(flag: Flag, x: Tensor, state: State, weights: Weights) -> State:
    return (flag(sum(_gates(flag, x, state[0], weights))),)  # type: ignore[arg-type]


def _cell(step: Step) -> Callable[..., Any]:
    def rule(flag: Flag, x: Tensor, state: Any, *weights: Tensor) -> Any:
        present = [weight for weight in weights if weight is not None]
        new = step(flag, x, tuple(state) if isinstance(state, list | tuple) else (state,), present)
        return new if len(new) > 1 else new[0]

    return rule


def _layers(step: Step) -> Callable[..., Any]:
    def rule(
        flag: Flag, x: Tensor, state: Any, weights: Any, has_biases: bool, num_layers: int, dropout: float, *rest: Any
    ) -> tuple[Tensor, ...]:
        if len(rest) != 3:
            raise ValueError("model: packed sequences are not supported by effective_density; pass padded ones")
        _, bidirectional, batch_first = rest
        del has_biases, dropout
        starts = tuple(state) if isinstance(state, list | tuple) else (state,)
        runs = num_layers * (2 if bidirectional else 1)
        each = len(weights) // runs
        x = x.transpose(0, 1) if batch_first else x
        ends: list[State] = []
        for layer in range(num_layers):
            outputs = []
            for direction in range(runs // num_layers):
                run = layer * (runs // num_layers) + direction
                own = weights[run * each : (run + 1) * each]
                output, end = _run(step, flag, x, tuple(part[run] for part in starts), own, backwards=direction == 1)
                outputs.append(output)
                ends.append(end)
            x = torch.cat(outputs, -1)
        x = x.transpose(0, 1) if batch_first else x
        return x, *(torch.stack(parts) for parts in zip(*ends, strict=True))

    return rule


def _run(step: Step, flag: Flag, x: Tensor, state: State, weights: Weights, *, backwards: bool) -> tuple[Tensor, State]:
    outputs = []
    for token in x.flip(0) if backwards else x:
        state = step(flag, token, state, weights)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs), state


RULES: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head,
    "lstm": _layers(_lstm_step),
    "gru": _layers(_gru_step),
    "rnn_tanh": _layers(_plain_step),
    "rnn_relu": _layers(_plain_step),
    "lstm_cell": _cell(_lstm_step),
    "gru_cell": _cell(_gru_step),
    "rnn_tanh_cell": _cell(_plain_step),
    "rnn_relu_cell": _cell(_plain_step),
}
