"""MaskPicture: the mask of one sparse orthogonal matrix, entry by entry."""

from dataclasses import dataclass
from typing import Any, ClassVar

from orthosparse.lab.experiments._experiment import Experiment
from orthosparse.lab.names import check_name


@dataclass(frozen=True, eq=False)
class MaskPicture(Experiment):
    """A square matrix of `size` filled by a scheme, ``eoi`` or ``sao`` in the paper."""

    kind: ClassVar[str] = "mask_picture"

    scheme: str
    size: int = 32
    density: float = 0.125

    def __post_init__(self) -> None:
        """Check the scheme's name.

        Raises:
            ValueError: an unknown one.
        """
        check_name("scheme", self.scheme)

    def run(self, seed: int, **where: Any) -> dict[str, Any]:
        """Return the mask (0 and 1) and the values, row after row."""
        del where  # nothing to read, keep or wait for
        import torch
        from torch import nn

        from orthosparse import DISTRIBUTIONS, SCHEMES, isometry
        from orthosparse.randomness import derive

        linear: nn.Linear = nn.utils.skip_init(nn.Linear, self.size, self.size, bias=False)
        with torch.no_grad():
            linear.weight.zero_()
        counts = DISTRIBUTIONS["uniform"](linear, self.density, generator=derive(seed, "counts"))
        mask = SCHEMES[self.scheme](linear, counts, generator=derive(seed, "mask_picture"))["weight"]
        return {
            "rows": self.size,
            "columns": self.size,
            "count": int(mask.sum()),
            "orthogonality": float(isometry.orthogonality_score(linear.weight.detach())),
            "curves": {"mask": mask.int().flatten().tolist(), "values": linear.weight.detach().flatten().tolist()},
        }
