"""The time, once a device has done what it was given."""

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch takes seconds, and whoever only describes an experiment has no use for it
    import torch


def now(device: "torch.device") -> float:
    """Return the seconds of a clock that only goes forward, after `device` has caught up."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)
    return perf_counter()


def resolved(device: str) -> "torch.device":
    """Return the device that a name stands for; ``auto`` is a GPU where there is one.

    Raises:
        ValueError: no such device, or a GPU where there is none.

    Example:
        >>> resolved("cpu")
        device(type='cpu')
    """
    kind, _, index = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and (kind != "cuda" or not index.isdigit())):
        raise ValueError(f"device: expected auto, cpu, cuda or cuda:INDEX; got {device!r}")
    import torch

    found = torch.cuda.device_count()
    if kind == "cuda" and int(index or 0) >= found:
        raise ValueError(f"device: expected cpu or one of the {found} GPUs that torch sees; got {device!r}")
    return torch.device(("cuda" if found else "cpu") if kind == "auto" else device)
