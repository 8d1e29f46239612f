"""Members of a family: a name in its table or a function of one's own, the options that it takes, what it returns."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import nn

from orthosparse.aliases import Density, Masks
from orthosparse.checks import describe
from orthosparse.layers import Layer
from orthosparse.masks import ScoredMasks
from orthosparse.progress import reporter
from orthosparse.registry import did_you_mean, listed, lookup
from orthosparse.structures import grid_of, tiled

# What the members of each family are handed; what else one takes is an option of its own.
_HANDED = {
    "distribution": ("layers", "batch", "loss", "generator"),
    "scheme": ("layers", "gain", "bias_std", "generator"),
}
_OPTIONAL = {"consume", "progress"}  # handed to those that take them
_NO_OPTIONS = {"model", "density", "masks", "floor", *_OPTIONAL, *_HANDED["distribution"], *_HANDED["scheme"]}


@dataclass(frozen=True)
class Member:
    """A distribution or a scheme that was asked for.

    Attributes:
        family: ``"distribution"`` or ``"scheme"``.
        is_own: whether it is a function of the user's, not one of the table.
    """

    family: str
    name: str
    function: Callable[..., Masks]
    is_own: bool

    def takes(self, argument: str) -> bool:
        """Whether the function has an argument of that name."""
        parameters = inspect.signature(self.function).parameters.values()
        return any(each.name == argument or each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)

    @property
    def options(self) -> list[str]:
        """The arguments that are options of its own."""
        kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(self.function).parameters.values()
        return sorted(each.name for each in parameters if each.kind in kinds and each.name not in _NO_OPTIONS)

    def __call__(self, *given: Any, layers: Mapping[str, Layer], **arguments: Any) -> Masks:
        """Call the function with what it takes of `consume` and `progress`, and check what one's own returns."""
        known = inspect.signature(self.function).parameters
        taken = {name: value for name, value in arguments.items() if name in known or name not in _OPTIONAL}
        if self.is_own and "progress" in taken:
            taken["progress"] = reporter(taken["progress"])  # a function, whatever the user gave
        masks = self.function(*given, layers=layers, **taken)
        return _checked(masks, layers, f"{self.family} {self.name!r}") if self.is_own else masks


def member_of(table: Mapping[str, Callable[..., Masks]], given: Any, family: str) -> Member:
    """Return the member of a name in the table, or one made of a function.

    Raises:
        TypeError: a function that does not take what members of the family are handed.
        ValueError: a name that is not in the table.
    """
    if not callable(given) or isinstance(given, type | nn.Module):
        return Member(family, given, lookup(table, given, family), is_own=False)
    member = Member(family, getattr(given, "__name__", type(given).__name__), given, is_own=True)
    if lacking := [argument for argument in _HANDED[family] if not member.takes(argument)]:
        handed = ", ".join(_HANDED[family])
        raise TypeError(
            f"{family}: expected a function that takes {handed} by keyword; {member.name} lacks {', '.join(lacking)}"
        )
    return member


def label(distribution: Member, density: Density, scored: bool) -> str:
    """Return what a report says of the distribution: one that draws has no say in densities given by layer."""
    if not isinstance(density, Mapping):
        return distribution.name
    return f"{distribution.name} at given densities" if scored else "given densities"


def route(options: Mapping[str, Any], members: Iterable[Member], arguments: Iterable[str]) -> list[dict[str, Any]]:
    """Hand each option to the members that take an argument of that name.

    Args:
        arguments: those of the function that was called, for what a misspelt option may have meant.

    Raises:
        ValueError: an option that no member takes.
    """
    members = list(members)
    for option, value in options.items():
        if option == "sparsity":
            meant = f": density={1 - value:.6g}" if isinstance(value, Real) else ""
            raise ValueError(f"sparsity: expected the density, which is 1 - sparsity{meant}; got sparsity={value!r}")
        if not any(option not in _NO_OPTIONS and member.takes(option) for member in members):
            known = "; ".join(
                f"{each.family} {each.name!r} takes {', '.join(each.options) or 'none'}" for each in members
            )
            meant = did_you_mean(option, [*arguments, *(name for each in members for name in each.options)])
            families = " or the ".join(member.family for member in members)
            raise ValueError(f"options: expected one that the {families} takes; got {option!r} ({known}){meant}")
    return [{name: value for name, value in options.items() if member.takes(name)} for member in members]


def _checked(masks: Any, layers: Mapping[str, Layer], who: str) -> Masks:
    """Return the masks on the devices of their layers, and their scores as they are.

    Raises:
        TypeError: not a mapping of bool tensors.
        ValueError: other layers, other shapes, parts of units, or scores that are no numbers for each weight.
    """
    if not isinstance(masks, Mapping):
        raise TypeError(f"{who}: expected it to return masks by layer name; got {describe(masks)}")
    if masks.keys() != layers.keys():
        raise ValueError(f"{who}: expected it to return masks of {listed(layers)}; got {listed(masks)}")
    for name, layer in layers.items():
        _check_mask(masks[name], layer, who)
    placed = {name: masks[name].to(layer.parameter().device) for name, layer in layers.items()}
    if not isinstance(masks, ScoredMasks):
        return placed
    for name, layer in layers.items():
        score = masks.scores.get(name)
        if not isinstance(score, torch.Tensor) or not score.is_floating_point() or score.shape != layer.shape:
            expected = f"floating-point scores of shape {tuple(layer.shape)} for {name!r}"
            raise ValueError(f"{who}: expected it to return {expected}; got {describe(score)}")
    return ScoredMasks(placed, masks.scores)


def _check_mask(mask: Any, layer: Layer, who: str) -> None:
    if not isinstance(mask, torch.Tensor) or mask.dtype is not torch.bool:
        raise TypeError(f"{who}: expected it to return a bool tensor for {layer.name!r}; got {describe(mask)}")
    if mask.shape != layer.shape:
        shapes = f"shape {tuple(layer.shape)} for {layer.name!r}; got {tuple(mask.shape)}"
        raise ValueError(f"{who}: expected it to return a mask of {shapes}")
    if layer.block > 1 and not torch.equal(tiled(grid_of(mask, layer.block), layer.block, mask.shape), mask):
        raise ValueError(f"{who}: expected it to return whole blocks ({layer.structure}) for {layer.name!r}")
