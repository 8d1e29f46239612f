"""Rows as a store holds them, made by hand: an experiment, a seed, metrics; and the experiments that a command runs."""

import shlex
from itertools import pairwise

from orthosparse.lab.experiments.selection import selected
from orthosparse.lab.paper import ITEMS

METRICS = {
    "training": {"test_accuracy": 0.5},
    "spectrum": {"mean": 0.5, "max": 1.0},
    "efficiency": {"seconds": 0.002, "modelled_seconds": 9.0, "orthogonality": 3e-7},
    "expected_density": {"rotations": 7, "largest_distance": 0.25},
    "mask_picture": {"count": 2, "orthogonality": 1e-7, "columns": 2},
    "parameter_count": {"parameters": 9000, "prunable": 8000, "kept": 800},
    "init_runtime": {"seconds": 3.0, "sparsify_seconds": 1.0},
    "conv_picture": {"outputs": 1, "inputs": 1, "side": 1, "count": 1, "center_count": 1},
}
CURVES = {"mask_picture": {"mask": [1, 0, 0, 1]}, "conv_picture": {"mask": [1], "weights": [1.0]}}


def row_of(experiment, seed=1, *, curves=None, device="toy machine", wall_s=2.0, **metrics):
    return {
        "key": experiment.key(),
        "seed": seed,
        "kind": experiment.kind,
        "fields": experiment.described(),
        "metrics": metrics,
        "curves": curves or {},
        "commit": "abc",
        "versions": {},
        "device": device,
        "wall_s": wall_s,
        "time": "2026-01-01T00:00:00+00:00",
    }


def rows_for(experiments, seed=1, **more):
    return [
        row_of(each, seed, curves=CURVES.get(each.kind), **METRICS[each.kind], **more)
        for each in dict.fromkeys(experiments)
    ]


def deep_starts(model):
    """The ERK starts of a 1000-layer network, and the dense one, by name."""
    found = [each for each in ITEMS["deep_networks"].experiments() if each.model == model]
    starts = [each for each in found if each.density == 1 or each.distribution == "erk"]
    return {"dense" if each.density == 1 else each.scheme: each for each in starts}


def chosen(command):
    """The experiments that a command of the page runs."""
    words = shlex.split(command.strip("`"))
    assert words[:3] == ["orthosparse", "paper", "run"]
    filters = [value for option, value in pairwise(words) if option == "--only"]
    every = ITEMS[words[3]].experiments()
    return selected(every, filters) if filters else every
