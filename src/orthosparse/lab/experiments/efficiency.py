"""Efficiency: what one sparse orthogonal matrix costs, and how orthogonal it is."""

from dataclasses import dataclass
from typing import Any, ClassVar

from orthosparse.lab.experiments._experiment import Experiment
from orthosparse.registry import lookup

AI_ITERATIONS = 10_000
_METHODS = ("ai", "ai-plain", "eoi", "released-cost-model", "sao")
_DESCENTS = ("ai", "ai-plain")


@dataclass(frozen=True, eq=False)
class Efficiency(Experiment):
    """An n x n matrix, from the seed to float32 values and mask on the device.

    Attributes:
        method: ``eoi``, ``sao`` (at the density nearest to the asked one that it allows), ``ai`` (from a dense
            orthogonal matrix times a random mask; stops once its loss no longer falls), ``ai-plain`` (goes through all
            its iterations), or ``released-cost-model``. The last is no measurement of a sampler: the paper's released
            code copies the matrix and counts its non-zeros at every rotation, so the model is the measured time of one
            such copy and count, times the expected number of rotations.
        iterations: of AI; None: 10^4.
    """

    kind: ClassVar[str] = "efficiency"
    accelerated: ClassVar[bool] = True

    method: str
    size: int
    density: float
    iterations: int | None = None

    def __post_init__(self) -> None:
        """Check the method's name.

        Raises:
            ValueError: an unknown one.
        """
        lookup(dict.fromkeys(_METHODS), self.method, "method")

    def unread(self) -> set[str]:
        """Return the iterations, which AI alone has."""
        return set() if self.method == "ai" else {"iterations"}

    def cost(self) -> float:
        """Return a rough number of seconds on a processor."""
        if self.method not in _DESCENTS:
            return 1.0 + 1e-7 * self.size**2
        return 1.0 + (self.iterations or AI_ITERATIONS) * (2e-5 + 4 * self.size**3 * 1e-11)

    def run(self, seed: int, *, device: str = "auto", **where: Any) -> dict[str, Any]:
        """Return seconds (of the model: ``modelled_seconds``), the orthogonality score and what was drawn."""
        del where  # no data, nothing kept, too short to watch
        from orthosparse.lab.experiments._matrices import measure
        from orthosparse.lab.training.devices import device_of

        return measure(self.method, self.size, self.density, self.iterations or AI_ITERATIONS, seed, device_of(device))
