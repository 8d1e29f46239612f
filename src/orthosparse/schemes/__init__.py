"""Schemes decide which weights are active and with what values, one file each.

Every scheme has one signature::

    name(model, masks, *, layers=None, gain=1.0, bias_std=0.0, generator=None, **own) -> Masks

It fills the weights of the layers that `masks` names, in place and exactly zero outside the masks that it returns, and
their biases with draws from N(0, bias_std), zeros when that is 0. Norms and all other tensors stay as they are, and no
masks are attached. `layers` is what `find_layers` returned; None finds them. `gain` multiplies orthogonal weights. What
a layer gets depends on the generator's state, the layer's name, its own mask and its own weights alone.
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
