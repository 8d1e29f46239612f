"""The paper's values of every option of a distribution or a scheme: what a description that leaves it out means.

A committed row is known by a key that names only what differs from the defaults. So that it means the same experiment
for ever, what it leaves out is looked up here, and never in the library, whose defaults serve its users and may change.
A new option of the library gets its value here, the one under which rows made before it keep their bits.
"""

from collections.abc import Mapping
from typing import Any

PAPER_OPTIONS: dict[str, dict[str, Any]] = {
    # distributions
    "dense_ends": {"over": "inner", "ends": None},
    "er": {},
    "erk": {"compat": None},
    "grasp": {"compat": None, "temperature": 200.0},
    "magnitude": {},
    "snip": {"compat": None},
    "snip_iterative": {"rounds": 60},
    "synflow": {"compat": None, "rounds": 100, "input_shape": None},
    "uniform": {"compat": None},
    # schemes; where AI descends is for the machine to say
    "ai": {"iterations": 10_000, "learning_rate": 0.1, "tolerance": 1e-6},
    "base": {},
    "eoi": {
        "align": "none",
        "angle": None,
        "center_density": None,
        "core": None,
        "depthwise": "keep",
        "start": "identity",
        "stop": "exact",
        "strided": "delta",
        "tap": "center",
    },
    "sao": {"activation": "linear", "degree": "exact"},
    "scaled": {},
}


def resolved(distribution: str, scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a start, the paper's values for those that are left out.

    Example:
        >>> resolved("erk", "ai", {"iterations": 1000})
        {'compat': None, 'iterations': 1000, 'learning_rate': 0.1, 'tolerance': 1e-06}
    """
    return {**PAPER_OPTIONS.get(distribution, {}), **PAPER_OPTIONS.get(scheme, {}), **options}
