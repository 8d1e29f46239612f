"""Distributions and schemes, by name or as a user's function: their options, and checks of what they return."""

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

# The arguments that every member of a family gets; its other arguments are its options.
_HANDED = {
    "distribution": ("layers", "batch", "loss", "generator"),
    "scheme": ("layers", "gain", "bias_std", "generator"),
}
_OPTIONAL = {"consume", "progress"}  # passed to members that have these arguments
_NO_OPTIONS = {"model", "density", "masks", "floor", *_OPTIONAL, *_HANDED["distribution"], *_HANDED["scheme"]}


@dataclass(frozen=True)
class Member:
    """A distribution or a scheme.

    Attributes:
        family: ``"distribution"`` or ``"scheme"``.
        is_own: whether it is a function of the user, not one in the table.
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
        """The arguments that are its options."""
        kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(self.function).parameters.values()
        return sorted(each.name for each in parameters if each.kind in kinds and each.name not in _NO_OPTIONS)

    def __call__(self, *given: Any, layers: Mapping[str, Layer], **arguments: Any) -> Masks:
        """Call the function, with `consume` and `progress` if it takes them, and check the result if it is a user's."""
        known = inspect.signature(self.function).parameters
        taken = {name: value for name, value in arguments.items() if name in known or name not in _OPTIONAL}
        if self.is_own and "progress" in taken:
            taken["progress"] = reporter(taken["progress"])  # always a function for it
        masks = self.function(*given, layers=layers, **taken)
        return _checked(masks, layers, f"{self.family} {self.name!r}") if self.is_own else masks


def member_of(table: Mapping[str, Callable[..., Masks]], given: Any, family: str) -> Member:
    """Return the member for a name in the table, or for a function.

    Raises:
        TypeError: the function does not take the arguments that every member of the family gets.
        ValueError: the name is not in the table.
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
    """Return the distribution for a report; one that draws masks has no effect on densities given by layer."""
    if not isinstance(density, Mapping):
        return distribution.name
    return f"{distribution.name} at given densities" if scored else "given densities"


def route(options: Mapping[str, Any], members: Iterable[Member], arguments: Iterable[str]) -> list[dict[str, Any]]:
    """Return the options for each member: those that it has arguments for.

    Args:
        arguments: arguments of the calling function, to suggest one for a misspelt option.

    Raises:
        ValueError: no member takes an option.
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
    """Return the masks on the devices of their layers, with their scores unchanged.

    Raises:
        TypeError: it is not a mapping of bool tensors.
        ValueError: layers, shapes or scores do not fit the layers, or a block is only partly active.
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
