"""Pictures of matrices: a square an entry, as PNG on a transparent ground that suits any page."""

import base64
import io
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.image import imsave

from orthosparse.lab.rendering.theme import COLOURS

_FAINTEST = 0.35  # of an active entry, however small its value
_SIDE = 8  # pixels of an entry between rules


def picture_of(values: Any, mask: Any, *, every: int = 0) -> str:
    """Return a matrix as a data URI: active entries coloured by sign, stronger the larger; the others transparent.

    Args:
        every: draw a rule after this many entries, such as between the kernels of a convolution; 0 draws none.

    Example:
        >>> picture_of(np.eye(2), np.eye(2))[:22]
        'data:image/png;base64,'
    """
    numbers, active = np.asarray(values, dtype=float), np.asarray(mask, dtype=bool)
    if numbers.ndim != 2 or active.shape != numbers.shape:
        raise ValueError(f"mask: expected a matrix and a mask of its shape; got {numbers.shape} and {active.shape}")
    pixels = np.zeros((*numbers.shape, 4))
    pixels[..., :3] = np.where((numbers >= 0)[..., None], _middle("eoi"), _middle("base"))
    strength = np.abs(numbers) / max(np.abs(numbers).max(), np.finfo(float).tiny)
    pixels[..., 3] = np.where(active, _FAINTEST + (1 - _FAINTEST) * strength, 0.0)
    if every:
        pixels = pixels.repeat(_SIDE, 0).repeat(_SIDE, 1)
        pixels[every * _SIDE :: every * _SIDE] = pixels[:, every * _SIDE :: every * _SIDE] = (*_middle("muted"), 1.0)
    buffer = io.BytesIO()
    imsave(buffer, pixels, format="png")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _middle(role: str) -> Any:
    """Return the colour halfway between the light and the dark one: a picture cannot change with the page."""
    return np.mean([to_rgb(colour) for colour in COLOURS[role]], axis=0)
