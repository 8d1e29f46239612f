"""ExpectedDensity: the density that Observation 1 predicts after every rotation, and that of one draw."""

from dataclasses import dataclass
from typing import Any, ClassVar

from orthosparse.lab.experiments._experiment import Experiment


@dataclass(frozen=True, eq=False)
class ExpectedDensity(Experiment):
    """A square matrix of `size`, rotated `rotations` times; None: until it is expected to be all but full."""

    kind: ClassVar[str] = "expected_density"

    size: int = 100
    rotations: int | None = None

    def run(self, seed: int, **where: Any) -> dict[str, Any]:
        """Return both curves and their largest distance."""
        del where  # nothing to read, keep or wait for
        from orthosparse import givens
        from orthosparse.randomness import derive

        rotations = self.rotations
        if rotations is None:
            rotations = givens.expected_rotations(self.size, self.size, 0.99)
        expected = givens.expected_density(self.size, rotations)
        counts = givens.counts_after((self.size, self.size), rotations, generator=derive(seed, "expected_density"))
        measured = counts.double() / self.size**2
        return {
            "rotations": rotations,
            "largest_distance": float((expected - measured).abs().max()),
            "curves": {"expected": expected.tolist(), "measured": measured.tolist()},
        }
