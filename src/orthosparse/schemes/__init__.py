"""Schemes decide which weights are active and with what values, one file each.

Every scheme has one signature::

    name(model, masks, *, layers=None, gain=1.0, bias_std=0.0, generator=None, **own) -> Masks

It fills the weights of the layers that `masks` names, in place and exactly zero outside the masks that it returns, and
their biases with draws from N(0, bias_std), zeros when that is 0. Norms and all other tensors stay as they are, and no
masks are attached. `layers` is what `find_layers` returned; None finds them. `gain` multiplies orthogonal weights. What
a layer gets depends on the generator's state, the layer's name, its own mask and its own weights alone.
"""

from collections.abc import Callable

from orthosparse.mappings import Masks
from orthosparse.schemes.ai import ai
from orthosparse.schemes.base import base
from orthosparse.schemes.eoi import eoi, eoi_floor
from orthosparse.schemes.sao import sao
from orthosparse.schemes.scaled import scaled

SCHEMES: dict[str, Callable[..., Masks]] = {
    "ai": ai,
    "base": base,
    "eoi": eoi,
    "sao": sao,
    "scaled": scaled,
}

# The fewest entries that a scheme needs in a layer, called as ``floor(layer, **own)``; a scheme without an entry takes
# any number.
SCHEME_FLOORS: dict[str, Callable[..., int]] = {"eoi": eoi_floor}

__all__ = ["SCHEMES", "SCHEME_FLOORS", "ai", "base", "eoi", "sao", "scaled"]
