"""Figures and pictures as SVG elements in the page's colours; every point says its values under the pointer."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from matplotlib.ticker import Locator, LogLocator, MaxNLocator

from orthosparse.lab.paper._rendered import Figure, Picture, Series

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 440.0, 260.0, 66.0, 12.0, 10.0, 40.0
_HOVERED, _DOTTED = 60, 24  # points of a curve that answer the pointer, and up to which each has a dot


class _Point(NamedTuple):
    """A value and what it lies between, one deviation off on either side."""

    x: float
    y: float
    low: float
    high: float

    def words(self, names: Sequence[str]) -> str:
        spread = f" ({self.high - self.y:.2g})" if self.high > self.y else ""
        place = names[round(self.x)].replace("\n", " ") if names else f"{self.x:.4g}"
        return f"{place}, {self.y:.4g}{spread}"


@dataclass(frozen=True)
class _Axis:
    """Maps values to pixels between `begin` and `end`."""

    low: float
    high: float
    begin: float
    end: float
    log: bool
    whole: bool = False  # nothing lies between two whole numbers, such as epochs

    def at(self, value: float) -> float:
        low, high, value = (map(math.log10, (self.low, self.high, value))) if self.log else (self.low, self.high, value)
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        decades = self._within(LogLocator(numticks=6)) if self.log else []
        return decades if len(decades) > 1 else self._within(MaxNLocator(5, integer=self.whole))

    def _within(self, locator: Locator) -> list[float]:
        found = [float(tick) for tick in locator.tick_values(self.low, self.high)]
        return [tick for tick in found if self.low <= tick <= self.high * (1 + 1e-9) and (tick > 0 or not self.log)]


def figure_svg(figure: Figure) -> str:
    """Return the chart of a figure: axes with ticks, curves, points with titles."""
    points = [list(_points(series, figure)) for series in figure.series]
    xs = [point.x for each in points for point in each]
    ys = [end for each in points for point in each for end in (point.low, point.high)]
    if not xs:
        return ""
    across = _axis(xs, _LEFT, _WIDTH - _RIGHT, figure.log_x)
    if figure.names:
        across = _Axis(-0.5, len(figure.names) - 0.5, across.begin, across.end, log=False)
    ups = [y for y in ys if figure.top is None or y <= figure.top] or ys
    up = _axis(ups, _HEIGHT - _BOTTOM, _TOP, figure.log_y)
    body = [*_frame(across, up, figure)]
    width, height = _WIDTH - _LEFT - _RIGHT + 8, _HEIGHT - _TOP - _BOTTOM + 8
    box = f"{_LEFT - 4:g} {_TOP - 4:g} {width:g} {height:g}"  # an inner svg cuts off what leaves the axes
    body.append(f'<svg x="{_LEFT - 4:g}" y="{_TOP - 4:g}" width="{width:g}" height="{height:g}" viewBox="{box}">')
    body += [_curve(series, each, across, up, figure.names) for series, each in zip(figure.series, points, strict=True)]
    body.append("</svg>")
    label = escape(figure.title, quote=True)
    return f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{label}">{"".join(body)}</svg>'


def picture_svg(picture: Picture) -> str:
    """Return the entries of a picture as squares."""
    rows, columns = len(picture.entries), len(picture.entries[0])
    parts = [f'<rect width="{columns}" height="{rows}" class="ground"/>']
    for name, value in (("full", 1), ("free", 2)):
        squares = [
            f"M{column} {row}h1v1h-1z"
            for row, line in enumerate(picture.entries)
            for column, entry in enumerate(line)
            if entry == value
        ]
        parts.append(f'<path class="{name}" d="{"".join(squares)}"/>')
    every = picture.every or 0
    rules = [f"M{at} 0v{rows}" for at in range(every, columns, every)] if every else []
    rules += [f"M0 {at}h{columns}" for at in range(every, rows, every)] if every else []
    parts.append(f'<path class="rules" d="{"".join(rules)}"/>')
    label = escape(f"{picture.title}: {picture.caption}", quote=True)
    return f'<svg class="entries" viewBox="0 0 {columns} {rows}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _points(series: Series, figure: Figure) -> Iterator[_Point]:
    """Yield the points that the axes can show: finite, and positive on a logarithmic one."""
    deviations = series.deviations or [None] * len(series.ys)
    for x, y, deviation in zip(series.xs, series.ys, deviations, strict=True):
        if y is None or not math.isfinite(y) or (figure.log_y and y <= 0) or (figure.log_x and x <= 0):
            continue
        yield _Point(x, y, y - (deviation or 0.0), y + (deviation or 0.0))


def _axis(values: Sequence[float], begin: float, end: float, log: bool) -> _Axis:
    low, high = min(values), max(values)
    if log:
        low, high = (low / 1.1, high * 1.1)
    else:
        room = 0.03 * (high - low) or 0.5 * (abs(high) or 1.0)
        low, high = low - room, high + room
    whole = all(float(value).is_integer() for value in values) and min(values) != max(values)
    return _Axis(low, high, begin, end, log, whole)


def _frame(across: _Axis, up: _Axis, figure: Figure) -> Iterator[str]:
    for place, name in enumerate(figure.names):
        x = across.at(place)
        for line, part in enumerate(name.split("\n")):
            height = _HEIGHT - _BOTTOM + 12 + 10 * line
            yield f'<text class="name" x="{x:.1f}" y="{height:g}" text-anchor="middle">{escape(part)}</text>'
    for tick in [] if figure.names else across.ticks():
        x = across.at(tick)
        yield f'<path class="grid" d="M{x:.1f} {_TOP:g}V{_HEIGHT - _BOTTOM:g}"/>'
        yield f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 14:g}" text-anchor="middle">{tick:g}</text>'
    for tick in up.ticks():
        y = up.at(tick)
        yield f'<path class="grid" d="M{_LEFT:g} {y:.1f}H{_WIDTH - _RIGHT:g}"/>'
        yield f'<text x="{_LEFT - 6:g}" y="{y + 3.5:.1f}" text-anchor="end">{tick:g}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle:g}" y="{_HEIGHT - 6:g}" text-anchor="middle">{escape(figure.x)}</text>'
    turn = f'transform="translate(12 {(_HEIGHT - _BOTTOM + _TOP) / 2:g}) rotate(-90)"'
    yield f'<text {turn} text-anchor="middle">{escape(figure.y)}</text>'


def _curve(series: Series, points: list[_Point], across: _Axis, up: _Axis, names: Sequence[str]) -> str:
    path = "L".join(f"{across.at(point.x):.1f} {up.at(point.y):.1f}" for point in points)
    dash = f' stroke-dasharray="{series.dash}"' if series.dash else ""
    label = escape(series.label)
    joined = len(points) > 1 and not series.points
    parts = [f'<path class="curve" d="M{path}"{dash}><title>{label}</title></path>'] if joined else []
    spread = [point for point in points if point.high > point.low]
    ends = "".join(f"M{across.at(each.x):.1f} {up.at(each.low):.1f}V{up.at(each.high):.1f}" for each in spread)
    parts += [f'<path class="curve" d="{ends}"/>'] * bool(ends)
    step = max(1, math.ceil(len(points) / _HOVERED))
    radius = 4 if series.points else 2.6 if len(points) <= _DOTTED else 0
    for point in points[::step]:
        place = f'cx="{across.at(point.x):.1f}" cy="{up.at(point.y):.1f}"'
        title = f"<title>{label}: {escape(point.words(names))}</title>"
        parts += [f'<circle class="{series.points or "full"}" {place} r="{radius}"/>'] * bool(radius)
        parts.append(f'<circle class="hover" {place} r="7">{title}</circle>')
    method = escape(series.method, quote=True)
    return f'<g data-method="{method}" style="--role: var(--{series.role})">{"".join(parts)}</g>'
