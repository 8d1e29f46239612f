"""What an ensemble asks of its stacked networks."""

from typing import Any, Protocol

import torch
from torch import Tensor


class Network(Protocol):
    """Networks of one shape, computed together from samples to logits and back.

    Attributes:
        dtype: in which products are computed; the slabs keep their own.
    """

    dtype: torch.dtype

    def rows(self, images: Tensor) -> Tensor:
        """Return pictures ``[..., C, H, W]`` as rows of numbers, in the order in which the first layer reads them."""

    def logits(self, x: Tensor) -> Tensor:
        """Return the outputs for samples ``[members, batch, features]`` as they are tested, and keep nothing."""

    def ahead(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the outputs as they are trained, and what the way back needs."""

    def back(self, grad: Tensor, kept: list[Any]) -> None:
        """Fill the gradients of all slabs and their norms; `kept` is emptied on the way."""
