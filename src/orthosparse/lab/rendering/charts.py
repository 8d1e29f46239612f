"""Figures drawn by matplotlib: as a file, or as inline SVG whose points say their values under the pointer."""

import hashlib
import io
import math
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from orthosparse.files import write_atomically
from orthosparse.lab.rendering.contents import Figure, Series
from orthosparse.lab.rendering.theme import COLOURS

_HOVERED, _DOTTED = 60, 40  # points of a curve that answer the pointer, and up to which each has a marker
_DECADES = 3  # of a logarithmic axis below its curves, up to which 1, 2 and 5 of each are named
_WIDTH, _HEIGHT = 5.0, 2.7  # inches of one chart, without its legend
_ENTRY = 1.5  # inches of one entry of a legend
_MARGIN = 0.05  # of an axis, between its end and the curves
_INK, _MUTED, _RULE = (COLOURS[role][0] for role in ("ink", "muted", "rule"))
STYLE: Any = {
    "svg.fonttype": "none",  # text stays text, in the font of the page
    "svg.hashsalt": "orthosparse",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": _INK,
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _RULE,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "figure.dpi": 72,  # a pixel is a point, as in SVG
}


def draw(figure: Figure) -> Canvas:
    """Return the chart of a figure."""
    columns = _legend_columns(figure.series)
    rows = math.ceil(len(figure.series) / columns)
    with rc_context(STYLE):
        canvas = Canvas(figsize=(_WIDTH, _HEIGHT + 0.17 * rows), layout="constrained")
        axes = canvas.subplots()
        draw_on(axes, figure)
        if len(figure.series) > 1:
            legend = canvas.legend(loc="outside upper left", ncols=columns, handlelength=1.6, borderaxespad=0)
            for index, parts in enumerate(zip(legend.legend_handles, legend.get_texts(), strict=True)):
                for part in parts:
                    if part is not None:
                        part.set_gid(f"series{index}")
    return canvas


def draw_grid(figures: Sequence[Sequence[Figure]]) -> Canvas:
    """Return rows of charts that share their axes, with one legend; titles stand above the first row."""
    with rc_context(STYLE):
        canvas = Canvas(figsize=(2.6 * len(figures[0]) + 0.6, 2.6 * len(figures) + 0.5), layout="constrained")
        axes = canvas.subplots(len(figures), len(figures[0]), sharex=True, sharey="row", squeeze=False)
        for row, below in zip(figures, axes, strict=True):
            for column, (figure, panel) in enumerate(zip(row, below, strict=True)):
                draw_on(panel, figure)
                panel.set_title(figure.title if row is figures[0] else "", fontsize=11)
                panel.set(xlabel=figure.x if row is figures[-1] else "", ylabel="" if column else figure.y)
        handles = {line.get_label(): line for panel in axes.flat for line in panel.get_lines()}
        columns = min(6, int(canvas.get_figwidth() / _ENTRY))
        canvas.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=columns)
    return canvas


def svg_of(figure: Figure) -> str:
    """Return a figure as an `svg` element for a page, in the page's colours and with ids of its own.

    Every series is a group that names its method; points have titles with series, axes and values.
    """
    canvas, buffer = draw(figure), io.StringIO()
    with rc_context(STYLE):
        canvas.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    head, body = svg[svg.index("<svg") :].split(">", 1)
    (box,) = re.findall(r'viewBox="([^"]*)"', head)
    for index, series in enumerate(figure.series):
        body = body.replace(f'id="series{index}"', f'data-method="{escape(series.method)}"')
    for role, (colour, _) in COLOURS.items():
        body = body.replace(colour, f"var(--{role})")
    body = re.sub(r"\s*\n\s*", " ", re.sub(r"(\d\.\d\d)\d+", r"\1", body))
    mark = f"c{hashlib.sha256(body.encode()).hexdigest()[:8]}-"  # ids are the page's: two charts must not share one
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{mark}", body).replace("</svg>", "")
    points = "".join(_hovered(series, figure, canvas) for series in figure.series)
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(figure.title)}">{body}{points}</svg>'


def save(canvas: Canvas, path: Path, *, dpi: int = 160) -> None:
    """Write a chart on white paper, in the format of the path's ending; the same chart gives the same bytes."""
    # Each format has a date of its own to leave out.
    metadata = {".svg": {"Date": None}, ".png": {"Software": None}}.get(path.suffix, {})
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with rc_context(STYLE):
        canvas.savefig(buffer, format=path.suffix[1:], dpi=dpi, facecolor="white", metadata=metadata)
    write_atomically(path, buffer.getvalue())


def draw_on(axes: Axes, figure: Figure) -> None:
    """Draw the curves of a figure on axes of a chart, which get its names and limits."""
    if figure.log_x:
        axes.set_xscale("log")
    if figure.log_y:
        axes.set_yscale("log")
    for index, series in enumerate(figure.series):
        _draw_series(axes, series, figure, f"series{index}")
    axes.set(xlabel=figure.x, ylabel=figure.y)
    values = [y for series in figure.series for _, y in _shown(series, figure) if y is not None]
    beyond = [y for y in values if figure.top is not None and y > figure.top]
    if beyond and figure.top is not None:
        low = min(values)
        axes.set_ylim(low if figure.log_y else low - _MARGIN * (figure.top - low), figure.top)
        text = f"values up to {max(beyond):.3g} are beyond the axis"
        axes.annotate(text, (0.5, 0.98), xycoords="axes fraction", ha="center", va="top", fontsize=7.5, color=_MUTED)
    if figure.bottom is not None:
        top = axes.get_ylim()[1]
        axes.set_ylim(figure.bottom, top + _MARGIN * (top - figure.bottom) if figure.top is None else top)
    if figure.names:
        axes.set(xlim=(-0.5, len(figure.names) - 0.5))
        axes.set_xticks(range(len(figure.names)), figure.names, fontsize=7)
        axes.grid(visible=False, axis="x")
    elif figure.log_x:
        _name_few(axes)
    elif all(float(x).is_integer() for series in figure.series for x in series.xs):
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _name_few(axes: Axes) -> None:
    """Name ticks so that they do not run into each other, where powers of ten alone would be too few."""
    low, high = axes.get_xlim()
    if high < low * 10**_DECADES:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_series(axes: Axes, series: Series, figure: Figure, gid: str) -> None:
    shown = _shown(series, figure)
    xs, ys = [x for x, _ in shown], [math.nan if y is None else y for _, y in shown]
    options: dict[str, Any] = {"color": COLOURS[series.role][0], "label": series.label, "gid": gid, "lw": series.width}
    if series.bins:
        axes.fill_between(xs, ys, step="post", alpha=0.2, color=options["color"], gid=gid, linewidth=0)
        axes.step(xs, ys, where="post", **options)
        return
    if series.points:
        face = "none" if series.points == "hollow" else options["color"]
        axes.plot(xs, ys, **options | {"lw": 0}, marker="o", ms=5.5, mew=1.2, mfc=face)
    else:
        # A point between two gaps is seen by its marker alone.
        dotted = len(xs) <= _DOTTED or any(map(math.isnan, ys))
        axes.plot(xs, ys, **options, linestyle=series.style, marker="o" if dotted else "", ms=3)
    if series.deviations:
        low, high = ([y + sign * (s or 0.0) for y, s in zip(ys, series.deviations, strict=True)] for sign in (-1, 1))
        axes.vlines(xs, low, high, color=options["color"], lw=1.2, gid=gid)


def _shown(series: Series, figure: Figure) -> list[tuple[float, float | None]]:
    """Return the points; what the axes cannot show is a gap."""

    def fits(value: float | None, log: bool) -> bool:
        return value is not None and math.isfinite(value) and not (log and value <= 0)

    return [
        (x, y if fits(y, figure.log_y) else None)
        for x, y in zip(series.xs, series.ys, strict=True)
        if fits(x, figure.log_x)
    ]


def _hovered(series: Series, figure: Figure, canvas: Canvas) -> str:
    """Return invisible circles over the points, each with a title."""
    axes, height = canvas.axes[0], canvas.get_figheight() * 72
    shown = [(x, y, words) for x, y, words in _words(series, figure) if figure.top is None or y <= figure.top]
    circles = []
    every = 1 if series.names else math.ceil(len(shown) / _HOVERED)
    for x, y, words in shown[:: max(1, every)]:
        across, up = axes.transData.transform((x, y))
        center = f'cx="{across:.1f}" cy="{height - up:.1f}"'
        circles.append(f'<circle class="hover" {center} r="6"><title>{escape(words)}</title></circle>')
    tag = f'data-method="{escape(series.method)}" style="--role: var(--{series.role})"'
    return f"<g {tag}>{''.join(circles)}</g>"


def _words(series: Series, figure: Figure) -> Iterator[tuple[float, float, str]]:
    """Yield each point and what it says: the series, the names of the axes and the values."""
    spreads = series.deviations or [None] * len(series.xs)
    names = series.names or [""] * len(series.xs)
    for (x, y), spread, name in zip(_shown(series, figure), spreads, names, strict=False):
        if y is None:
            continue
        where = name or (figure.names[round(x)].replace("\n", " ") if figure.names else f"{figure.x} {x:.4g}")
        yield x, y, f"{series.label}: {where}, {figure.y} {y:.4g}" + (f" ± {spread:.2g}" if spread else "")


def _legend_columns(series: Sequence[Series]) -> int:
    widest = max((len(each.label) for each in series), default=0)
    return max(1, min(len(series), 66 // (widest + 6)))
