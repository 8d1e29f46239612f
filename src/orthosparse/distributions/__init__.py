"""Distributions say how many weights each layer may keep, and, where they score weights, which.

Every member has one signature::

    name(model, density, *, layers=None, batch=None, loss=None, generator=None, **own) -> Masks

Of the weights of `layers` (by default those `find_layers` finds), exactly ``density * weights`` are kept, to the
nearest integer; `dense_ends` alone means the layers between its ends. A mapping gives the density of each layer that
its names and globs match. Layers whose structure is blocks keep whole blocks: drawn at random, or those of largest mean
score. Masks are bool tensors on the device of their layer. `batch` is ``(inputs, targets)`` or an iterable of such
pairs, where inputs are a tensor, a mapping of keyword arguments or, inside an iterable, a tuple of positional ones.
`loss` is called as ``loss(outputs, targets)``, cross-entropy by default. What a member scored its weights by, in its
last round, is in `scores` of the masks that it returns (`ScoredMasks`), by layer name, the larger the better; masks of
random entries have no such attribute.

The model is as before afterwards, also when a member raises: weights, gradients, buffers, modes, hooks, and the global
generators. A member that draws (masks, dropout) takes its numbers from `generator`, or a fresh seed without one.

A member of one's own begins with `budget_of` and ends with `random_masks` or `top_scored`.
"""

from collections.abc import Callable

from orthosparse.aliases import Masks
from orthosparse.distributions._masks import budget_of, random_masks, top_scored
from orthosparse.lazy import LazyTable

__all__ = ["DISTRIBUTIONS", "budget_of", "random_masks", "top_scored"]

DISTRIBUTIONS: LazyTable[Callable[..., Masks]] = LazyTable(
    {
        "dense_ends": "orthosparse.distributions.dense_ends:dense_ends",
        "er": "orthosparse.distributions.er:er",
        "erk": "orthosparse.distributions.erk:erk",
        "grasp": "orthosparse.distributions.grasp:grasp",
        "magnitude": "orthosparse.distributions.magnitude:magnitude",
        "snip": "orthosparse.distributions.snip:snip",
        "snip_iterative": "orthosparse.distributions.snip_iterative:snip_iterative",
        "synflow": "orthosparse.distributions.synflow:synflow",
        "uniform": "orthosparse.distributions.uniform:uniform",
    }
)
