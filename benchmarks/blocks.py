"""Time and exactness of block-orthogonal starts: python benchmarks/blocks.py

One line a matrix, on one thread, in processor time: the fastest of five draws in float32, beside a dense orthogonal
matrix of the same sides where that is small; and the largest entry of |A A^T - I| in float64.
"""

from time import process_time

import torch

from orthosparse import init
from orthosparse.lab.bench.timing import shortest

SIDES = [(1024, 1024), (2048, 2048), (4096, 4096), (4096, 1024), (8192, 8192)]
STRUCTURES = ["block:16", "block:32", "block:64", "block:128"]
DENSITY = 0.1
DENSE_BELOW = 2048  # the longest side for which a dense QR is timed


def error_of(sides: tuple[int, int], structure: str) -> float:
    weight = torch.empty(sides, dtype=torch.float64)
    init.sparse_orthogonal_(
        weight, DENSITY, floor="minimal", structure=structure, generator=torch.Generator().manual_seed(0)
    )
    wide = weight if sides[0] <= sides[1] else weight.T
    return float((wide @ wide.T - torch.eye(len(wide), dtype=torch.float64)).abs().max())


def main() -> None:
    torch.set_num_threads(1)
    for sides in SIDES:
        dense = torch.empty(sides)
        compared = "-"
        if max(sides) <= DENSE_BELOW:
            compared = f"{shortest(lambda w=dense: init.orthogonal_(w), 1, clock=process_time):.3f} s"
        for structure in STRUCTURES:
            weight, draws = torch.empty(sides), iter(range(100))

            def start(weight: torch.Tensor = weight, structure: str = structure, draws: object = draws) -> None:
                generator = torch.Generator().manual_seed(next(draws))
                init.sparse_orthogonal_(weight, DENSITY, floor="minimal", structure=structure, generator=generator)

            seconds = shortest(start, 5, clock=process_time)
            shown = f"{error_of(sides, structure):.1e}" if max(sides) <= 4096 else "-"
            print(
                f"{sides[0]} x {sides[1]}  {structure:9}  {seconds:.3f} s  dense {compared}  error {shown}", flush=True
            )


if __name__ == "__main__":
    main()
