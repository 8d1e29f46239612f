"""Schemes decide which weights are active and what values they start with, one file each.

Every scheme has the same signature::

    name(model, masks, *, layers=None, gain=1.0, bias_std=0.0, generator=None, **own) -> Masks

A scheme fills the weights of the layers in `masks` in place, and returns the masks that they live on. Weights outside
the returned masks are exactly zero. Biases are normal with mean 0 and standard deviation `bias_std`; if that is 0, they
are set to zero (``base`` keeps them). Norms and all other tensors are not changed, and no masks are attached. `layers`
is the result of `find_layers`, which is called if None. `gain` multiplies orthogonal weights. The result for a layer
depends only on the state of `generator`, the layer's name, its mask and its weights.
"""

from collections.abc import Callable

from orthosparse.aliases import Masks
from orthosparse.lazy import LazyTable

__all__ = ["SCHEMES", "SCHEME_FLOORS"]

SCHEMES: LazyTable[Callable[..., Masks]] = LazyTable(
    {
        "ai": "orthosparse.schemes.ai:ai",
        "base": "orthosparse.schemes.base:base",
        "eoi": "orthosparse.schemes.eoi:eoi",
        "sao": "orthosparse.schemes.sao:sao",
        "scaled": "orthosparse.schemes.scaled:scaled",
    }
)

# The fewest entries that a scheme needs in a layer, called as ``floor(layer, **own)``; a scheme without an entry takes
# any number.
SCHEME_FLOORS: LazyTable[Callable[..., int]] = LazyTable({"eoi": "orthosparse.schemes.eoi:eoi_floor"})
