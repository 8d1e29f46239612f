"""Distributions decide how many weights each layer keeps and, if they score weights, which ones.

Every distribution has the same signature::

    name(model, density, *, layers=None, batch=None, loss=None, generator=None, **own) -> Masks

It keeps exactly ``density * weights`` of the weights of `layers`, to the nearest integer; only `dense_ends` applies the
density to the layers between the ends. By default, `layers` is what `find_layers` returns. `density` may also be a
mapping from layer names and globs to densities, except for `dense_ends` and with ``compat="paper-code"``. Layers whose
structure is blocks keep whole blocks, random ones or those with the largest mean scores; the total may then be off by
up to half a block. Masks are bool tensors on the device of their layer.

`batch` is ``(inputs, targets)`` or an iterable of such pairs. Inputs are a tensor, a mapping of keyword arguments or,
inside an iterable, a tuple of positional arguments. `loss` is called as ``loss(outputs, targets)`` and is cross-entropy
by default. Distributions that score weights return `ScoredMasks`, whose `scores` are those of the last round, by layer
name, larger is better. Random masks have no such attribute.

The model is not changed, even if a distribution raises: weights, gradients, buffers, modes and hooks stay as they are,
and so do the global random generators. Random numbers (for masks and dropout) come from `generator`, or from a fresh
seed without one.

A distribution of your own begins with `budget_of` and ends with `random_masks` or `top_scored`.
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
