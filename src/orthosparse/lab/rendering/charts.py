"""Charts: matplotlib figures in the colours of the page, and the inline SVG they become on it."""

import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from orthosparse.lab.rendering.theme import COLOURS, LABELS, light

Series = Mapping[str, Sequence[float]]

_BINS = 48
_MARKED = 40  # points up to which each gets a marker
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text, in the font of the page
    "svg.hashsalt": "orthosparse",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": light("ink"),
    "axes.labelcolor": light("muted"),
    "axes.edgecolor": light("rule"),
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": light("rule"),
    "grid.linewidth": 0.6,
    "xtick.color": light("muted"),
    "ytick.color": light("muted"),
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "figure.facecolor": "none",
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the house style inside the block; settings outside of it stay as they are."""
    with rc_context(_STYLE):
        yield


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, x: str, y: str, log: bool = False
) -> Figure:
    """Return a chart of curves (xs, ys) over whole numbers, one for each start; `x` and `y` name the axes."""
    with styled():
        figure, axes = _chart(x, y)
        for name, (xs, ys) in series.items():
            # A point between two gaps is seen by its marker alone.
            marked = len(xs) <= _MARKED or bool(np.isnan(ys).any())
            axes.plot(xs, ys, color=light(name), label=LABELS[name], marker="o" if marked else "", ms=3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if log:
            axes.set_yscale("log")
        _legend(axes, len(series))
    return figure


def histograms(series: Series, *, x: str, log: bool = False) -> Figure:
    """Return the histograms of several sets of values over common bins, as shares of each set.

    Args:
        log: bins of equal ratio; values that are 0 are left out.
    """
    kept = {name: np.asarray(values, dtype=float) for name, values in series.items()}
    if log:
        kept = {name: values[values > 0] for name, values in kept.items()}
    bins = _bins(np.concatenate(list(kept.values())), log)
    with styled():
        figure, axes = _chart(x, "share of the values")
        for name, values in kept.items():
            weights = np.full(len(values), 1 / max(1, len(series[name])))
            shared: dict[str, Any] = {"bins": bins, "weights": weights, "color": light(name)}
            axes.hist(values, **shared, histtype="stepfilled", alpha=0.2)
            axes.hist(values, **shared, histtype="step", linewidth=1.5, label=LABELS[name])
        if log:
            axes.set_xscale("log")
        _legend(axes, len(series))
    return figure


def profiles(series: Series, *, y: str, log: bool = True) -> Figure:
    """Return curves over the layers in their order, one for each start; where `log`, zeros leave a gap."""
    curves = {}
    for name, values in series.items():
        ys = np.asarray(values, dtype=float)
        curves[name] = (
            np.arange(1, len(ys) + 1).tolist(),
            np.where(ys > 0, ys, np.nan).tolist() if log else ys.tolist(),
        )
    return lines(curves, x="layer", y=y, log=log)


def inline_svg(figure: Figure, label: str) -> str:
    """Return the figure as an `svg` element for a page: its colours the page's, its ids its own, `label` read aloud."""
    buffer = io.StringIO()
    with styled():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    svg = svg[svg.index("<svg") :]
    head, body = svg.split(">", 1)
    (box,) = re.findall(r'viewBox="([^"]*)"', head)
    for role, (colour, _) in COLOURS.items():
        body = body.replace(colour, f"var(--{role})")
    mark = f"c{hashlib.sha256(body.encode()).hexdigest()[:8]}-"  # ids are the page's: two charts must not share one
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{mark}", body)
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(label)}">{body}'


def save(figure: Figure, path: Path, *, dpi: int = 160) -> None:
    """Write the figure on white paper, in the format of the path's ending; the same figure gives the same bytes."""
    # Each format has a date of its own to leave out.
    metadata = {".svg": {"Date": None}, ".png": {"Software": None}}.get(path.suffix, {})
    with styled():
        figure.savefig(path, dpi=dpi, facecolor="white", metadata=metadata)


def _chart(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.6, 3.3), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _legend(axes: Axes, entries: int) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=entries, borderaxespad=0.2, handlelength=1.4)


def _bins(values: np.ndarray, log: bool) -> np.ndarray:
    low, high = (values.min(), values.max()) if len(values) else (0.5, 2.0)
    if log:
        low, high = low / 1.1, high * 1.1
        return np.geomspace(low, high, _BINS + 1)
    return np.linspace(0.0, max(high * 1.05, np.finfo(float).tiny), _BINS + 1)
