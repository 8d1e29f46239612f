"""Linear layers that hold several matrices: which of their outputs are query, key and value, or gate and up."""

from typing import Any, NamedTuple

from torch import nn

# Last names of a Linear that holds query, key and value (or two matrices), in timm's and Hugging Face's models.
_QKV = {"qkv", "to_qkv", "Wqkv", "qkv_proj", "qkv_linear", "in_proj_qkv", "in_proj_qkvz", "c_attn", "query_key_value"}
_PAIRS = {"kv", "to_kv", "gate_up_proj", "w12"}

# Classes of transformers whose attention reads its heads one after the other, each as query, key and value.
_BY_HEAD = {
    "BloomAttention", "FalconAttention", "FalconFlashAttention2", "GPTNeoXAttention", "GPTNeoXJapaneseAttention",
    "PersimmonAttention", "GPTBigCodeAttention", "MiniMaxLightningAttention",
}  # fmt: skip
_CODEGEN_PIECES = 4  # CodeGenAttention: the cores of the machine that it was trained on

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads")
_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "kv_heads", "n_kv_heads", "n_kv_head")


class Parts(NamedTuple):
    """Output sizes of the fused matrices, and how often their rows alternate along the outputs: 1, one after the other.

    Example:
        >>> Parts((4, 4, 4), 2)  # the rows of q, k and v of the first head, then those of the second, two each
        Parts(sizes=(4, 4, 4), repeats=2)
    """

    sizes: tuple[int, ...]
    repeats: int = 1


def fused_parts(name: str, parent: nn.Module, out: int, inputs: int) -> Parts | None:
    """Return the matrices in a Linear of these sides, called `name` in the module `parent`; None where that is unknown.

    What is fused is known by the name. The sizes, and whether heads alternate, are read off the attributes and the
    configuration of the parent.

    Example:
        >>> fused_parts("qkv", nn.Module(), 12, 4), fused_parts("fc1", nn.Module(), 12, 4)
        (Parts(sizes=(4, 4, 4), repeats=1), Parts(sizes=(12,), repeats=1))
    """
    if name in _PAIRS:
        return Parts((out // 2, out // 2)) if out % 2 == 0 else None
    latent = _latent(name, parent)
    known = latent or (_attention(name, parent, out, inputs) if name in _QKV else Parts((out,)))
    return known if known is not None and sum(known.sizes) == out else None


def _attention(name: str, parent: nn.Module, out: int, inputs: int) -> Parts | None:
    kind, heads = type(parent).__name__, _number(parent, _HEADS)
    by_head = kind in _BY_HEAD or bool(getattr(parent, "head_first", False))  # timm's MaxViT says so itself
    if name == "query_key_value" and not by_head:
        return None  # others of that name lie one after the other, or not: nothing tells
    key, value = _number(parent, ("key_dim",)), _number(parent, ("val_dim", "value_dim"))
    if key and value and 2 * key + value == out:
        return Parts((key, key, value))
    if heads and key and value and heads * (2 * key + value) == out:  # timm's TinyViT and EfficientFormer
        return Parts((heads * key, heads * key, heads * value), heads)
    if kind == "CodeGenAttention":
        return Parts((out // 3,) * 3, _CODEGEN_PIECES)
    key_heads = _number(parent, _KEY_HEADS) or heads
    if heads and key_heads and (key_heads != heads or by_head):
        size, rest = divmod(out, heads + 2 * key_heads)
        whole = not rest and _number(parent, ("head_dim",)) in (None, size)
        return Parts((heads * size, key_heads * size, key_heads * size), key_heads if by_head else 1) if whole else None
    if out in (2 * inputs, 3 * inputs):
        return Parts((inputs,) * (out // inputs))
    return Parts((out // 3,) * 3) if heads and out % (3 * heads) == 0 else None


def _latent(name: str, parent: nn.Module) -> Parts | None:
    """The two matrices of DeepSeek's projections to and from the latent space of keys and values."""
    heads = _number(parent, _HEADS)
    rank, rotary = _number(parent, ("kv_lora_rank",)), _number(parent, ("qk_rope_head_dim",))
    if name == "kv_a_proj_with_mqa" and rank and rotary:
        return Parts((rank, rotary))
    key, value = _number(parent, ("qk_nope_head_dim",)), _number(parent, ("v_head_dim",))
    if name == "kv_b_proj" and heads and key and value:
        return Parts((heads * key, heads * value), heads)
    return None


def _number(parent: nn.Module, names: tuple[str, ...]) -> int | None:
    """The first of these attributes that is a positive integer, of the module or else of its configuration."""
    for holder in (parent, getattr(parent, "config", None)):
        for name in names:
            value: Any = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None
