"""Figures that several pages share: curves and histograms of starts, in the starts' colours."""

from collections.abc import Mapping, Sequence

import numpy as np

from orthosparse.lab.rendering.contents import Figure, Series
from orthosparse.lab.rendering.theme import LABELS

_BINS = 48


def lines(
    title: str,
    series: Mapping[str, tuple[Sequence[float], Sequence[float | None]]],
    *,
    x: str,
    y: str,
    log: bool = False,
    caption: str = "",
) -> Figure:
    """Return curves (xs, ys), one for each start; `x` and `y` name the axes."""
    curves = [Series(LABELS[name], xs, ys, name) for name, (xs, ys) in series.items()]
    return Figure(title, x, y, curves, log_y=log, caption=caption)


def profiles(title: str, series: Mapping[str, Sequence[float]], *, y: str, caption: str = "") -> Figure:
    """Return curves over the layers in their order, on a logarithmic axis where zeros leave a gap."""
    curves = {name: (range(1, len(ys) + 1), ys) for name, ys in series.items()}
    return lines(title, curves, x="layer", y=y, log=True, caption=caption)


def histograms(
    title: str, series: Mapping[str, Sequence[float]], *, x: str, log: bool = False, caption: str = ""
) -> Figure:
    """Return the histograms of several sets of values over common bins, as shares of each set.

    Args:
        log: bins of equal ratio; values that are 0 are left out.
    """
    sets = {name: np.asarray(values, dtype=float) for name, values in series.items()}
    kept = {name: values[values > 0] if log else values for name, values in sets.items()}
    bins = _bins(np.concatenate(list(kept.values())), log)
    shares = {name: np.histogram(values, bins)[0] / max(1, len(sets[name])) for name, values in kept.items()}
    curves = [
        Series(LABELS[name], bins.tolist(), [*share.tolist(), 0.0], name, bins=True) for name, share in shares.items()
    ]
    return Figure(title, x, "share of the values", curves, log_x=log, caption=caption)


def _bins(values: np.ndarray, log: bool) -> np.ndarray:
    low, high = (values.min(), values.max()) if len(values) else (0.5, 2.0)
    if log:
        return np.geomspace(low / 1.1, high * 1.1, _BINS + 1)
    return np.linspace(0.0, max(high * 1.05, np.finfo(float).tiny), _BINS + 1)
