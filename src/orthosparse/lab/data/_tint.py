"""Hue and saturation of a batch of images, a different change for each."""

import torch


def tint(pixels: torch.Tensor, turn: torch.Tensor, factor: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Return `pixels` (0 to 255, ``[B, 3, H, W]``) as floats with their hue and saturation changed.

    Args:
        turn: parts of a full turn of the hue, one an image.
        factor: of the saturation; 0 is grey, 1 changes nothing.
        first: 1 where the saturation changes before the hue.
    """
    turn, factor, first = (value.view(-1, 1, 1, 1) for value in (turn, factor, first))
    image = pixels / 255
    image = turn_hue(torch.where(first > 0, saturate(image, factor), image), turn)
    return torch.where(first > 0, image, saturate(image, factor)) * 255


def saturate(image: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return images (0 to 1) blended with their own luma (ITU-R 601), clipped."""
    red, green, blue = image.split(1, dim=1)
    grey: torch.Tensor = 0.299 * red + 0.587 * green + 0.114 * blue
    return (grey + factor * (image - grey)).clamp(0, 1)


def turn_hue(image: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Return RGB images (0 to 1) with the hue of HSV shifted, saturation and value unchanged."""
    red, green, blue = image.split(1, dim=1)
    value = image.amax(1, keepdim=True)
    chroma = value - image.amin(1, keepdim=True)
    # Grey has no hue: any number will do.
    span = torch.where(chroma > 0, chroma, 1)
    hue = torch.where(
        value == red,
        (green - blue) / span,
        torch.where(value == green, (blue - red) / span + 2, (red - green) / span + 4),
    )
    # HSV back to RGB: channel n in (5, 3, 1) falls short of the value by a trapezoid of the hue.
    steps = torch.arange(5, 0, -2, device=image.device).view(1, 3, 1, 1)
    sector = torch.remainder(steps + hue + 6 * turn, 6)
    return value - chroma * torch.minimum(sector, 4 - sector).clamp(0, 1)
