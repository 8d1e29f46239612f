"""How the numbers of an ensemble are computed: the choices that change time and memory, and roundings at most."""

from dataclasses import dataclass

from orthosparse.lab.training.ensemble.products import PRODUCTS
from orthosparse.registry import lookup


@dataclass(frozen=True)
class Ways:
    """How the same numbers are computed.

    Attributes:
        convolution: of plain chains, ``gather``, one batched product, or ``native``, torch's own kernels one member
            after the other; None is the faster one, ``native`` on a GPU. Residual networks have ``native`` alone.
        recompute: of plain chains, keep the samples at every 50th layer alone, and compute those between them again
            when going back.
        fused: have our own kernels take the layers that fit them; None does so on a GPU where Triton is installed, but
            leaves convolutions of plain chains that are not in bfloat16 to torch. False has torch's own take all.
    """

    convolution: str | None = None
    recompute: bool = False
    fused: bool | None = None

    def __post_init__(self) -> None:
        if self.convolution is not None:
            lookup(PRODUCTS, self.convolution, "convolution")
