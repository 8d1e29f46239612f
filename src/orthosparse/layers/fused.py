"""Find the matrices that are fused in a layer, from the user's `split` or from the names in the model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from orthosparse.checks import check_at_least
from orthosparse.layers.layer import Layer
from orthosparse.registry import matches_pattern

Split = Mapping[str, int | Sequence[int] | Mapping[str, Any]]

# Last names of a Linear that holds query, key and value (or two matrices), in timm's and Hugging Face's models.
_QKV = {"qkv", "to_qkv", "Wqkv", "qkv_proj", "qkv_linear", "in_proj_qkv", "in_proj_qkvz", "c_attn", "query_key_value"}
_PAIRS = {"kv", "to_kv", "gate_up_proj", "w12"}
_DOWN, _UP = "kv_a_proj_with_mqa", "kv_b_proj"  # of DeepSeek's latent space of keys and values
FUSED = {*_QKV, *_PAIRS, _DOWN, _UP}

# Attention classes of transformers in which each head has its own query, key and value rows, head after head.
_BY_HEAD = {
    "BloomAttention", "FalconAttention", "FalconFlashAttention2", "GPTNeoXAttention", "GPTNeoXJapaneseAttention",
    "PersimmonAttention", "GPTBigCodeAttention", "MiniMaxLightningAttention",
}  # fmt: skip
_CODEGEN_PIECES = 4  # of CodeGenAttention: the number of cores of the machine that it was trained on

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads")
_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "kv_heads", "n_kv_heads", "n_kv_head")


# Output sizes of the fused matrices, and how often their rows alternate (1: the matrices follow one another).
# ((4, 4, 4), 2): two rows each of q, k and v for the first head, then the same for the second head.
Parts = tuple[tuple[int, ...], int]


def check_split(model: nn.Module, split: Split) -> None:
    """Raise unless every name or glob in `split` matches something in the model.

    Raises:
        TypeError: `split` is not a mapping from strings.
        ValueError: a name or glob matches nothing.
    """
    if not isinstance(split, Mapping) or not all(isinstance(name, str) for name in split):
        raise TypeError(f"split: expected a mapping from names to numbers or sizes of parts; got {split!r}")
    tensors = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    names = [*tensors, *(name for name, _ in model.named_modules())]
    for pattern in split:
        if not any(matches_pattern(pattern, name) for name in names):
            raise ValueError(f"split: expected names of modules; {pattern!r} matches none of this model")


def with_parts(layer: Layer, model: nn.Module, split: Split) -> Layer:
    """Return a layer of `model` with its parts, from `split` or else from its name, or with a note if unknown."""
    for pattern, pieces in split.items():
        if matches_pattern(pattern, layer.module_name) or matches_pattern(
            pattern, f"{layer.module_name}.{layer.tensor}".lstrip(".")
        ):
            parts, repeats = _split(layer, pieces)
            return replace(layer, parts=parts, repeats=repeats)
    if layer.kind != "linear" or layer.stacked or len(layer.parts) > 1:
        return layer
    parent, _, name = layer.module_name.rpartition(".")
    inputs = layer.shape[0 if layer.transposed else 1]
    known = fused_parts(name, model.get_submodule(parent), layer.parts[0], inputs)
    if known is None:
        return replace(layer, note="treated as one matrix: its fused parts are unknown, pass split=")
    parts, repeats = known
    return replace(layer, parts=parts, repeats=repeats)


def _split(layer: Layer, pieces: int | Sequence[int] | Mapping[str, Any]) -> Parts:
    if not isinstance(pieces, Mapping):
        return _parts(layer, pieces), 1
    if set(pieces) != {"parts", "repeats"}:
        raise ValueError(f"split: expected parts and repeats for {layer.name!r}; got {', '.join(map(str, pieces))}")
    parts, repeats = _parts(layer, pieces["parts"]), check_at_least(pieces["repeats"], 1, "split: repeats")
    if any(part % repeats for part in parts) or (layer.groups > 1 and repeats > 1):
        raise ValueError(
            f"split: expected repeats that divide each of {parts}, in a layer without groups, for {layer.name!r}; "
            f"got {repeats}"
        )
    return parts, repeats if len(parts) > 1 else 1  # a single part alternates with none


def _parts(layer: Layer, pieces: int | Sequence[int]) -> tuple[int, ...]:
    out, sizes = sum(layer.parts), [pieces] if isinstance(pieces, int) else pieces
    if not isinstance(sizes, Sequence) or any(isinstance(each, bool) or not isinstance(each, int) for each in sizes):
        raise TypeError(f"split: expected an integer or a sequence of integers for {layer.name!r}; got {pieces!r}")
    if isinstance(pieces, int) and pieces > 0 and out % pieces == 0:
        return (out // pieces,) * pieces
    if not isinstance(pieces, int) and sum(pieces) == out and min(pieces) > 0:
        return tuple(pieces)
    raise ValueError(
        f"split: expected a divisor or a partition of {out}, the outputs of {layer.name!r}; got {pieces!r}"
    )


def fused_parts(name: str, parent: nn.Module, out: int, inputs: int) -> Parts | None:
    """Return the parts of a Linear with these sizes, called `name` in the module `parent`; None if they are unknown.

    The name says what is fused. The sizes, and whether heads alternate, are read from the attributes and the
    configuration of the parent.

    Example:
        >>> fused_parts("qkv", nn.Module(), 12, 4), fused_parts("fc1", nn.Module(), 12, 4)
        (((4, 4, 4), 1), ((12,), 1))
    """
    if name in _PAIRS:
        return ((out // 2, out // 2), 1) if out % 2 == 0 else None
    latent = _latent(name, parent)
    known = latent or (_attention(name, parent, out, inputs) if name in _QKV else ((out,), 1))
    return known if known is not None and sum(known[0]) == out else None


def _attention(name: str, parent: nn.Module, out: int, inputs: int) -> Parts | None:
    kind, heads = type(parent).__name__, _number(parent, _HEADS)
    by_head = kind in _BY_HEAD or bool(getattr(parent, "head_first", False))  # timm's MaxViT has this attribute
    if name == "query_key_value" and not by_head:
        return None  # in other classes the order of the rows is unknown
    key, value = _number(parent, ("key_dim",)), _number(parent, ("val_dim", "value_dim"))
    if key and value and 2 * key + value == out:
        return (key, key, value), 1
    if heads and key and value and heads * (2 * key + value) == out:  # timm's TinyViT and EfficientFormer
        return (heads * key, heads * key, heads * value), heads
    if kind == "CodeGenAttention":
        return (out // 3,) * 3, _CODEGEN_PIECES
    key_heads = _number(parent, _KEY_HEADS) or heads
    if heads and key_heads and (key_heads != heads or by_head):
        size, remainder = divmod(out, heads + 2 * key_heads)
        fits = not remainder and _number(parent, ("head_dim",)) in (None, size)
        sizes = (heads * size, key_heads * size, key_heads * size)
        return (sizes, key_heads if by_head else 1) if fits else None
    if out in (2 * inputs, 3 * inputs):
        return (inputs,) * (out // inputs), 1
    return ((out // 3,) * 3, 1) if heads and out % (3 * heads) == 0 else None


def _latent(name: str, parent: nn.Module) -> Parts | None:
    """Return the parts of DeepSeek's projections to and from the latent space of keys and values."""
    heads = _number(parent, _HEADS)
    rank, rotary = _number(parent, ("kv_lora_rank",)), _number(parent, ("qk_rope_head_dim",))
    if name == _DOWN and rank and rotary:
        return (rank, rotary), 1
    key, value = _number(parent, ("qk_nope_head_dim",)), _number(parent, ("v_head_dim",))
    if name == _UP and heads and key and value:
        return (heads * key, heads * value), heads
    return None


def _number(parent: nn.Module, names: tuple[str, ...]) -> int | None:
    """Return the first of these attributes, of the module or its configuration, that is a positive integer."""
    for holder in (parent, getattr(parent, "config", None)):
        for name in names:
            value: Any = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None
