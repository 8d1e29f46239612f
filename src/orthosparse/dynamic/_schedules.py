"""Which fraction of the active weights moves at a given step."""

import math


def cosine(fraction: float, step: int, end: float) -> float:
    """Return `fraction` annealed to 0 at step `end` along half a cosine (Evci et al. 2020, section 3).

    Example:
        >>> [round(cosine(0.5, step, 100), 3) for step in (0, 50, 100, 150)]
        [0.5, 0.25, 0.0, 0.0]
    """
    return fraction / 2 * (1 + math.cos(math.pi * min(step / end, 1.0)))
