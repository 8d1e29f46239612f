"""The figure of section 5.1: mean and largest singular value against sparsity, a column for each distribution."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from orthosparse.lab.rendering import LABELS, light, save, styled

# Colours say the activation, lines and markers the scheme, as in the paper.
_ACTIVATIONS = {"linear": "eoi", "tanh": "base", "hardtanh": "ai", "relu": "sao"}
_SCHEMES: dict[str, dict[str, Any]] = {
    "base": {"linestyle": ":", "marker": "v"},
    "ai": {"linestyle": "--", "marker": "s"},
    "eoi": {"linestyle": "-", "marker": "o"},
}
_TITLES = {"uniform": "Uniform", "erk": "ERK", "snip": "SNIP", "grasp": "GraSP", "synflow": "SynFlow"}
_TOPS = {"mean": 1.2, "max": 1.6}  # of the axes: what an isometry needs; values beyond are told in words


def render(rows: Iterable[Mapping[str, Any]], path: Path, *, dpi: int = 110) -> Figure:
    """Write the figure of a store's rows to `path` (its ending says the format), and return it; seeds are averaged."""
    rows = [{**row["fields"], **row["metrics"]} for row in rows]
    if not rows:
        raise ValueError("rows: expected at least one; got none")
    names = [name for name in _TITLES if any(row["distribution"] == name for row in rows)]
    with styled():
        figure = Figure(figsize=(2.6 * len(names) + 0.6, 5.4), layout="constrained")
        grid = figure.subplots(2, len(names), sharex=True, sharey="row", squeeze=False)
        for column, name in enumerate(names):
            grid[0, column].set_title(_TITLES[name], fontsize=11)
            grid[1, column].set_xlabel("sparsity")
            mine = [row for row in rows if row["distribution"] == name]
            for row, statistic in enumerate(_TOPS):
                _draw(grid[row, column], mine, statistic)
        grid[0, 0].set_ylabel("mean singular value")
        grid[1, 0].set_ylabel("largest singular value")
        _legend(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path, dpi=dpi)
    return figure


def _draw(axes: Axes, rows: Sequence[Mapping[str, Any]], statistic: str) -> None:
    for activation, role in _ACTIVATIONS.items():
        for scheme, style in _SCHEMES.items():
            mine = [row for row in rows if (row["activation"], row["scheme"]) == (activation, scheme)]
            densities = sorted({row["density"] for row in mine})
            means = [fmean(row[statistic] for row in mine if row["density"] == density) for density in densities]
            axes.plot([1 - density for density in densities], means, color=light(role), ms=3.5, lw=1.3, **style)
    axes.set_ylim(0, _TOPS[statistic])
    beyond = {LABELS[row["scheme"]] for row in rows if row[statistic] > _TOPS[statistic]}
    if beyond:
        told = f"{', '.join(sorted(beyond))}: up to {max(row[statistic] for row in rows):.3g}"
        axes.annotate(
            told, (0.5, 0.97), xycoords="axes fraction", ha="center", va="top", fontsize=8, color=light("muted")
        )


def _legend(figure: Figure) -> None:
    colours = [Line2D([], [], color=light(role), label=name, lw=2) for name, role in _ACTIVATIONS.items()]
    styles = [Line2D([], [], color=light("ink"), label=LABELS[name], ms=4, **style) for name, style in _SCHEMES.items()]
    figure.legend(handles=colours + styles, loc="outside upper center", ncols=len(colours) + len(styles))
