"""Pictures of matrices: a pixel an entry, as PNG on a transparent ground that suits any page."""

import base64
import io
from typing import Any

import numpy as np
import torch
from matplotlib.colors import to_rgb
from matplotlib.image import imsave

from orthosparse.lab.rendering.theme import COLOURS

_FAINTEST = 0.35  # of an active entry, however small its value


def picture_of(values: torch.Tensor, mask: torch.Tensor, *, positive: str = "eoi", negative: str = "base") -> str:
    """Return a matrix as a data URI: active entries coloured by sign, stronger the larger; the others transparent.

    Example:
        >>> picture_of(torch.eye(2), torch.eye(2).bool())[:22]
        'data:image/png;base64,'
    """
    numbers, active = values.detach().double().cpu().numpy(), mask.cpu().numpy()
    if numbers.ndim != 2 or active.shape != numbers.shape:
        raise ValueError(f"mask: expected a matrix and a mask of its shape; got {numbers.shape} and {active.shape}")
    pixels = np.zeros((*numbers.shape, 4))
    pixels[..., :3] = np.where((numbers >= 0)[..., None], _middle(positive), _middle(negative))
    strength = np.abs(numbers) / max(np.abs(numbers).max(), np.finfo(float).tiny)
    pixels[..., 3] = np.where(active, _FAINTEST + (1 - _FAINTEST) * strength, 0.0)
    buffer = io.BytesIO()
    imsave(buffer, pixels, format="png")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _middle(role: str) -> Any:
    """Half way between the light and the dark colour: a picture cannot change with the page."""
    return np.mean([to_rgb(colour) for colour in COLOURS[role]], axis=0)
