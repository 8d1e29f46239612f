"""The time, once a device has done what it was given."""

from time import perf_counter

import torch


def now(device: torch.device) -> float:
    """Return the seconds of a clock that only goes forward, after `device` has caught up."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter()


def resolved(device: str) -> torch.device:
    """Return the device that a name stands for; ``auto`` is a GPU where there is one.

    Example:
        >>> resolved("cpu")
        device(type='cpu')
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)
