"""Where the logits are in what a model returns, and the loss on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor
from torch.nn.functional import cross_entropy

Pick: TypeAlias = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Head:
    """The logits of a model: one tensor of what it returns, and the axis that counts its classes.

    Attributes:
        pick: takes the logits out of what the model returns; None where it returns them.
        axis: 1 for [batch, classes] and [batch, classes, height, width], -1 for [batch, tokens, classes].
    """

    pick: Pick | None = None
    axis: int = 1

    def logits(self, result: Any) -> Any:
        """Return the logits of what the model returned."""
        return result if self.pick is None else self.pick(result)

    def loss(self, result: Any, labels: Tensor) -> Tensor:
        """Return the cross-entropy, averaged over samples and over all that a sample has a label for."""
        return cross_entropy(self.logits(result).movedim(self.axis, 1), labels)

    def classes_and_sides(self, shape: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        """Return how many classes logits of a shape have, and the sides of the labels of one sample.

        Example:
            >>> Head().classes_and_sides((8, 21, 32, 32)), Head(axis=-1).classes_and_sides((8, 16, 50))
            ((21, (32, 32)), (50, (16,)))
        """
        sides = list(shape)
        classes = sides.pop(self.axis)
        return classes, tuple(sides[1:])


def picker(text: str | None) -> Pick | None:
    """Return a function that takes an entry of the model's output: an index, a key or an attribute.

    Example:
        >>> picker("1")(("features", "logits"))
        'logits'
    """
    if text is None:
        return None

    def pick(result: Any) -> Any:
        try:
            if isinstance(result, Mapping):
                return result[text]
            return result[int(text)] if text.lstrip("-").isdigit() else getattr(result, text)
        except (KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"output: {text!r} is not in what the model returns, a {type(result).__name__}") from error

    return pick
