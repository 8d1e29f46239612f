"""ConvPicture: one sparse delta-orthogonal kernel, its weights and its mask, entry by entry."""

from dataclasses import dataclass
from typing import Any, ClassVar

from orthosparse.lab.experiments._experiment import Experiment


@dataclass(frozen=True, eq=False)
class ConvPicture(Experiment):
    """A kernel of `outputs` x `inputs` x `side` x `side`; `center_density` is that of H, as `init` takes it."""

    kind: ClassVar[str] = "conv_picture"

    outputs: int = 4
    inputs: int = 4
    side: int = 3
    density: float = 0.25
    center_density: float | None = None

    def run(self, seed: int, **where: Any) -> dict[str, Any]:
        """Return weights and mask (0 and 1) in the order of the tensor [outputs, inputs, side, side]."""
        del where  # nothing to read, keep or wait for
        import torch

        from orthosparse import init, isometry
        from orthosparse.randomness import derive

        weight = torch.zeros(self.outputs, self.inputs, self.side, self.side)
        generator = derive(seed, "conv_picture")
        options = {"density": self.density, "center_density": self.center_density, "generator": generator}
        mask = init.sparse_delta_orthogonal_(weight, **options)  # type: ignore[arg-type]
        middle = (self.side - 1) // 2
        return {
            "outputs": self.outputs,
            "inputs": self.inputs,
            "side": self.side,
            "count": int(mask.sum()),
            "center_count": int(torch.count_nonzero(weight[:, :, middle, middle])),
            "orthogonality": float(isometry.orthogonality_score(weight)),
            "curves": {"mask": mask.int().flatten().tolist(), "weights": weight.flatten().tolist()},
        }
