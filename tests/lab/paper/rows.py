"""Rows as a store holds them, made by hand: an experiment, a seed, metrics."""


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
