"""What each start does to the signal: singular values up to each depth, before any training."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from orthosparse import isometry

_STOPS = 10


@dataclass(frozen=True, eq=False)
class Isometry:
    """The spectra of one start.

    Attributes:
        values: singular values of the input-output Jacobian, all inputs together.
        depths: layers counted from the input, the last one included.
        means: mean singular value up to each of `depths`.
    """

    values: Tensor
    depths: list[int]
    means: list[float]

    @property
    def mean(self) -> float:
        """The mean singular value from input to output."""
        return float(self.values.mean())

    @property
    def max(self) -> float:
        """The largest one."""
        return float(self.values.max())


def measure(starts: Mapping[str, nn.Module], images: Tensor, depth: int) -> dict[str, Isometry]:
    """Return the spectra of every start, in float64: a hundred masked layers shrink a signal below float32."""
    stops = sorted({1, *range(0, depth, max(1, depth // _STOPS))} - {0})
    found = {}
    for name, network in starts.items():
        precise, inputs = copy.deepcopy(network).double(), images.double()
        means = [isometry.singular_values(precise, inputs, through=f"fc{stop}").mean for stop in stops]
        whole = isometry.singular_values(precise, inputs)
        found[name] = Isometry(whole.values.flatten(), [*stops, depth], [*means, whole.mean])
    return found
