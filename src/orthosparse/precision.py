"""Where float64 and decompositions are computed: on a tensor's own device if it has them, otherwise on the CPU."""

import torch

_COMPLETE = ("cpu", "cuda", "meta")  # Apple's GPUs have no float64, and torch decomposes no matrices on them


def on_float64_device(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as it is, or on the CPU if its device has no float64."""
    return tensor if tensor.device.type in _COMPLETE else tensor.cpu()


def to_float64(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64, on the CPU if its device has none."""
    return on_float64_device(tensor).double()
