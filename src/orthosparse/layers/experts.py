"""Stacks of experts, ``[experts, out, in]`` or ``[experts, in, out]``, as transformers' mixtures hold them."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from orthosparse.parametrized import has_one_leaf, leaf, tensor_names

Facts = dict[str, Any]  # kind, parts, groups, transposed, biases, ...: what a Layer is made of besides its place

_UP = ("gate_up_proj", "gate_proj", "up_proj")
_DOWN = "down_proj"


def expert_stacks(module: nn.Module) -> Iterator[tuple[str, Facts]]:
    """Yield the tensors of a module that are stacks of experts, each with the facts its Layer needs.

    Transformers' experts hold ``down_proj`` and one or two of ``gate_up_proj``, ``gate_proj`` and ``up_proj``; how they
    are stored is an attribute of the module, or what the sides tell. JetMoe's hold one ``weight``.
    """
    sides = {
        name: tuple(leaf(module, name).shape)
        for name in tensor_names(module)
        if has_one_leaf(module, name) and leaf(module, name).dim() == 3
    }
    if "weight" in sides and sides["weight"] == _sizes(module, "num_experts", "output_size", "input_size"):
        yield "weight", _facts(module, "weight", sides["weight"], transposed=False)
    transposed = _is_transposed(module, sides)
    if transposed is not None:
        for name in sides:
            if name in (*_UP, _DOWN):
                yield name, _facts(module, name, sides[name], transposed=transposed)


def holds_unknown_experts(module: nn.Module) -> bool:
    """Whether a module has stacks of experts by their names, but nothing tells how each of them is stored."""
    names = {name for name in tensor_names(module) if has_one_leaf(module, name) and leaf(module, name).dim() == 3}
    return _DOWN in names and not names.isdisjoint(_UP) and not any(True for _ in expert_stacks(module))


def _is_transposed(module: nn.Module, sides: dict[str, tuple[int, ...]]) -> bool | None:
    """Whether the stacks are [experts, in, out]; None where they are no experts, or nothing tells."""
    ups = [name for name in _UP if name in sides]
    if not ups or _DOWN not in sides:
        return None
    experts, first, second = sides[_DOWN]
    said = getattr(module, "is_transposed", None)
    fused = 2 if ups[0] == "gate_up_proj" else 1
    plain, swapped = (experts, fused * second, first), (experts, second, fused * first)
    if sides[ups[0]] not in (plain, swapped):
        return None
    if isinstance(said, bool):
        return said
    if plain != swapped:
        return sides[ups[0]] == swapped
    hidden = getattr(getattr(module, "config", module), "hidden_size", getattr(module, "hidden_dim", None))
    return None if hidden not in (first, second) or first == second else hidden == second


def _facts(module: nn.Module, name: str, sides: tuple[int, ...], *, transposed: bool) -> Facts:
    out = sides[2 if transposed else 1]
    biases = tuple(bias for bias in (f"{name}_bias",) if bias in tensor_names(module))
    facts = {"kind": "linear", "stacked": True, "transposed": transposed, "biases": biases}
    if name != "gate_up_proj":
        return facts | {"parts": (out,)}
    # Gate and up lie one after the other, or row by row in turns.
    repeats = 1 if getattr(module, "is_concatenated", True) else out // 2
    return facts | {"parts": (out // 2, out // 2), "repeats": repeats}


def _sizes(module: nn.Module, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(module, name, None) for name in names)
