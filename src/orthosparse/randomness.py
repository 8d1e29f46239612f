"""Draw reproducibly: a seed from a generator, generators from a seed, and orthogonal matrices.

A function that fills many layers draws a single seed from the user's generator and derives one generator per layer
name, so that the values of a layer depend only on that seed and its name: not on the layers before it, the device, the
number of threads or the rank.
"""

import hashlib
import secrets

import torch

from orthosparse.checks import check_at_least
from orthosparse.hardware import on_threads

_SEED_BITS = 63


def draw_seed(generator: torch.Generator | None, seed: int | None = None) -> int:
    """Return `seed`, or a 63-bit one from `generator` (on any device), or from the operating system if both are None.

    The global generators are neither read nor advanced.

    Raises:
        TypeError: `generator` is not a generator (for example a seed), or `seed` is not an integer.
        ValueError: both are given, or `seed` is negative or has more than 63 bits.

    Example:
        >>> draw_seed(torch.Generator().manual_seed(0)) == draw_seed(torch.Generator().manual_seed(0))
        True
    """
    if seed is not None:
        if generator is not None:
            raise ValueError(f"seed: expected a seed or a generator; got both, {seed!r} and {generator!r}")
        return check_at_least(seed, 0, "seed")
    if generator is None:
        return secrets.randbits(_SEED_BITS)
    if not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator: expected a torch.Generator, or None; got {generator!r} ({type(generator).__name__}). "
            "torch.Generator().manual_seed(seed) makes one from a seed"
        )
    # 63 bits: the largest range torch.randint takes.
    return int(torch.randint(2**_SEED_BITS - 1, (), generator=generator, device=generator.device).item())


def derive_seed(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed that depends on `seed` and every name, and on nothing else."""
    key = "\x1f".join([str(seed), *map(str, names)]).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1


def derive(seed: int, *names: str | int) -> torch.Generator:
    """Return a CPU generator that depends on `seed` and every name, and on nothing else.

    Example:
        >>> a, b = derive(0, "fc1"), derive(0, "fc2")
        >>> bool(torch.rand((), generator=a) == torch.rand((), generator=b))
        False
    """
    return torch.Generator().manual_seed(derive_seed(seed, *names))


def haar(batch: int, rows: int, cols: int, *, generator: torch.Generator) -> torch.Tensor:
    """Return [batch, rows, cols] matrices with orthonormal rows or columns, whichever are fewer, uniform among those.

    The Q of a Gaussian matrix is uniform (Haar) once R is given a positive diagonal.
    """
    sizes = batch, max(rows, cols), min(rows, cols)
    tall = torch.randn(sizes, generator=generator, dtype=torch.float64, device="cpu")
    with on_threads(1):  # the last bits of QR and matrix products depend on the number of threads
        q, r = torch.linalg.qr(tall)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)
    matrix: torch.Tensor = q * signs.unsqueeze(-2)
    return matrix if rows >= cols else matrix.mT
