"""How sure a number is: means and deviations, differences with their standard errors, and what may cause them."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

Number = tuple[float, float | None]  # mean and standard deviation; None where one number is all there is
_ROUNDING = 0.005  # of the paper's numbers, which have two digits
PAPER_SEEDS = 5  # runs behind a number of the paper, which states their standard deviation

_GRASP = "GraSP keeps the largest theta * Hg here, as its authors define it; the released code keeps the smallest"
_SNIP = "SNIP scores the cross-entropy here; the released code takes logits for log-probabilities"
_SYNFLOW = "SynFlow scores the logits here; the released code scores log-probabilities"
_MACHINE = "another machine and a faster training loop"
AI = "AI runs on the GPU here and stops where its loss no longer falls, instead of after 10^4 iterations"
_EOI = "the rotations are sampled by a compiled kernel here"

# By the table's item and title, or its item alone, and a line, its block or its start.
_CAUSES = {
    ("deep_networks", "Test accuracy of 1000-layer networks, density 12.5 %", "grasp"): _GRASP,
    # Not of EOI's: scored as the released code does, it differs as clearly.
    ("deep_networks", "Test accuracy of 1000-layer networks, density 12.5 %", "snip/ai"): _SNIP,
    ("contemporary", "", "grasp"): _GRASP,
    ("contemporary", "", "synflow"): _SYNFLOW,
    ("contemporary_5", "", "grasp"): _GRASP,
    ("contemporary_5", "", "synflow"): _SYNFLOW,
    ("activations", "", "grasp"): _GRASP,
    ("activations", "", "synflow"): _SYNFLOW,
    ("angles", "", ""): "the paper does not name its distribution; ours is ERK",
    ("init_runtime", "", "base"): _MACHINE,
    ("init_runtime", "", "ai"): AI,
    ("init_runtime", "", "eoi"): _EOI,
}


class Difference(NamedTuple):
    """A difference of two means and its standard error; None where no deviation is known."""

    value: float
    error: float | None


def is_clear(difference: Difference) -> bool:
    """Return whether a difference is more than two standard errors, and more than the paper's two digits can hide."""
    return difference.error is not None and abs(difference.value) > max(2 * difference.error, _ROUNDING)


def summary(values: Sequence[float]) -> Number | None:
    """Return mean and sample standard deviation; one value has no deviation, no value no mean.

    Example:
        >>> summary([1.0, 3.0]), summary([1.0]), summary([])
        ((2.0, 1.4142135623730951), (1.0, None), None)
    """
    if not values:
        return None
    return fmean(values), stdev(values) if len(values) > 1 else None


def to_paper(ours: Number, seeds: int, paper: Number) -> Difference:
    """Return ours less the paper's, two independent means.

    Of a single run of ours the deviation is not known; the paper's stands in for it.

    Example:
        >>> value, error = to_paper((90.0, 0.3), 3, (89.0, 0.5))
        >>> value, round(error, 6)
        (1.0, 0.282843)
    """
    spread = ours[1] if ours[1] is not None else paper[1]
    if spread is None:
        return Difference(ours[0] - paper[0], None)
    return Difference(ours[0] - paper[0], math.sqrt(spread**2 / seeds + (paper[1] or 0.0) ** 2 / PAPER_SEEDS))


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Difference | None:
    """Return the mean of one less the other over the seeds that both have; the error is that of the differences.

    Example:
        >>> paired({1: 3.0, 2: 5.0}, {1: 1.0, 2: 1.0, 3: 9.0})
        Difference(value=3.0, error=1.0)
    """
    found = summary([one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())])
    if found is None:
        return None
    count = len(one.keys() & other.keys())
    return Difference(found[0], None if found[1] is None else found[1] / math.sqrt(count))


def cause_of(item: str, title: str, line: str) -> str:
    """Return what may cause a difference in a line ``distribution/scheme`` of a table; empty if nothing is known to.

    Example:
        >>> cause_of("init_runtime", "Seconds", "erk/base")
        'another machine and a faster training loop'
    """
    names = [line, *line.split("/"), ""]
    found = [_CAUSES.get((item, where, name)) for where in (title, "") for name in names]
    return next(filter(None, found), "")
