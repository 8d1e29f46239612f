"""Experiments: frozen dataclasses of plain values, each with a key, a price and a `run(seed)` that returns metrics.

A kind is one file; `KINDS` lists them. `experiment_of` makes an experiment out of its key again.
"""

import json
from typing import Any

from orthosparse.lab.experiments._experiment import Experiment, Progress
from orthosparse.lazy import LazyTable
from orthosparse.registry import lookup

__all__ = ["KINDS", "Experiment", "Progress", "experiment_of"]

KINDS: LazyTable[type[Experiment]] = LazyTable(
    {
        "conv_picture": "orthosparse.lab.experiments.conv_picture:ConvPicture",
        "efficiency": "orthosparse.lab.experiments.efficiency:Efficiency",
        "expected_density": "orthosparse.lab.experiments.expected_density:ExpectedDensity",
        "init_runtime": "orthosparse.lab.experiments.init_runtime:InitRuntime",
        "mask_picture": "orthosparse.lab.experiments.mask_picture:MaskPicture",
        "parameter_count": "orthosparse.lab.experiments.parameter_count:ParameterCount",
        "spectrum": "orthosparse.lab.experiments.spectrum:Spectrum",
        "training": "orthosparse.lab.experiments.training:Training",
    }
)


def experiment_of(key: str) -> Experiment:
    """Return the experiment whose key this is.

    Raises:
        ValueError: an unknown kind, or a field that this version does not have.

    Example:
        >>> experiment_of('{"kind":"mask_picture","scheme":"sao"}')
        MaskPicture(scheme='sao', size=32, density=0.125)
    """
    given: dict[str, Any] = json.loads(key)
    kind = lookup(KINDS, given.pop("kind", None), "kind")
    known = kind.names()
    if unknown := sorted(given.keys() - known):
        raise ValueError(f"key: expected fields of {kind.__name__} ({', '.join(sorted(known))}); got {unknown}")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})
