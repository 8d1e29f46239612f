"""Curves of figures: the colours and dashes of starts, activations and methods."""

from collections.abc import Mapping, Sequence

from orthosparse.lab.paper._rendered import Number, Series

# Colours say the start wherever a figure has one activation.
ROLES = {"base": "base", "ai": "ai", "eoi": "eoi", "sao": "sao", "dense": "dense"}
DASHES = {"base": "2 3", "ai": "6 3", "eoi": ""}


def counted(label: str, ys: Sequence[float | None], role: str, *, method: str = "", first: int | None = None) -> Series:
    """Return a curve over 1, 2, 3 ... (epochs), cut after the `first` so many."""
    kept = list(ys)[:first]
    return Series(label, list(range(1, len(kept) + 1)), kept, role, method=method or label)


def pointed(
    label: str, means: Mapping[float, Number | None], role: str, *, method: str = "", points: str = "full"
) -> Series:
    """Return means and their deviations by place, those that there are, as points that nothing joins."""
    found = {place: mean for place, mean in means.items() if mean is not None}
    ys, deviations = [mean for mean, _ in found.values()], [deviation for _, deviation in found.values()]
    return Series(label, list(found), ys, role, method=method or label, points=points, deviations=deviations)


def drawn(series: Sequence[Series]) -> tuple[Series, ...]:
    """Return the curves that have a point."""
    return tuple(each for each in series if len(each.xs))
