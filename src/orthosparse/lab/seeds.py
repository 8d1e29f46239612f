"""A generator for each purpose out of a run's seed, and a fence around code that draws from the global one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from orthosparse.randomness import derive, derive_seed


@dataclass(frozen=True)
class Generators:
    """The generators of one run; drawing from one moves no other, so changing the scheme does not reorder the data.

    Attributes:
        init: the dense weights.
        mask: the distribution and the scheme.
        data: the order of the samples; a `Loader` takes ``data.initial_seed()``.
        augment: crops and flips; a `Loader` takes ``augment.initial_seed()``.
        rewire: masks that move while training.
        dropout: layers that draw while training; see `fenced`.
    """

    init: torch.Generator
    mask: torch.Generator
    data: torch.Generator
    augment: torch.Generator
    rewire: torch.Generator
    dropout: torch.Generator


def generators(seed: int) -> Generators:
    """Return fresh generators for every purpose of a run.

    Example:
        >>> one, two = generators(1), generators(1)
        >>> _ = torch.rand(1000, generator=one.mask)
        >>> torch.equal(torch.randperm(9, generator=one.data), torch.randperm(9, generator=two.data))
        True
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed: expected an int; got {seed!r}")
    return Generators(**{purpose: derive(seed, "run", purpose) for purpose in Generators.__dataclass_fields__})


@contextmanager
def fenced(seed: int, devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """Seed torch's global generators inside the block, and leave them afterwards as they were found.

    For code that takes no generator: the constructors of torch's and timm's modules, dropout. Only the processor's
    generator and those of `devices` (CUDA) are touched.
    """
    indices = [torch.cuda.current_device() if device.index is None else device.index for device in devices]
    with torch.random.fork_rng(devices=indices):
        # Not torch.manual_seed: it would also seed every other device, which the fork does not restore.
        torch.default_generator.manual_seed(seed)
        for index in indices:
            torch.cuda.default_generators[index].manual_seed(derive_seed(seed, "cuda", index))
        yield
