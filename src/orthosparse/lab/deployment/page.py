"""What deploy has measured, as tables and on a page."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from orthosparse.lab.deployment.shipping import PURPOSES
from orthosparse.lab.rendering.contents import Figure, Page, Section, Series, Table, Tile, plain_table

_HEADINGS = ("layer", "shape", "density", "form", "dense", "chosen", "ratio", "note")
_GIVEN = ("eager", "channels-last", "compiled")  # forms of the network as it was given
_DENSE = {"dense": "muted", "dense channels-last": "ai"}  # their colours
_ROLES = ("eoi", "sao", "scaled", "base")  # and those of other forms


def page_of(title: str, lead: str, table: Any, files: Mapping[str, int], foot: Sequence[str]) -> Page:
    """Return the page of one call of deploy.

    Args:
        table: that deploy returned.
        files: the bytes of each file beside the page.
    """
    before, after = _given(table), table.latency[table.chosen]
    layers, network = tables_of(table)
    tiles = [
        Tile("times as fast as the best dense form", f"{table.ratio:.2f}", f"{_ms(after)} instead of {_ms(before)}"),
        Tile("weights that are not zero", f"{table.live:,}", f"of {table.weights:,}"),
        Tile("dead units removed", f"{sum(table.removed.values()):,}", f"outputs within {table.error:.1e}"),
    ]
    shipped = [(name, f"{size:,}", PURPOSES[name]) for name, size in files.items()]
    sections = [
        Section("The whole network", tables=[network], figures=[_latencies(table), _ratios(table)], notes=table.notes),
        Section("Layer by layer", tables=[layers]),
        Section("Files", tables=[plain_table(("file", "bytes", "what it is"), shipped, text=(0, 2))]),
    ]
    return Page(title, lead, tiles, sections, foot)


def tables_of(table: Any) -> tuple[Table, Table]:
    """Return the layers with their forms, and the whole network in all its forms."""
    forms = [
        (name, _ms(seconds), f"{_given(table) / seconds:.2f}", "chosen" if name == table.chosen else "")
        for name, seconds in table.latency.items()
    ]
    return (
        plain_table(_HEADINGS, [_cells(row) for row in table.rows], text=(0, 1, 3, 7)),
        plain_table(("form", "latency", "ratio", "choice"), forms, text=(0, 3)),
    )


def _cells(row: Any) -> tuple[str, ...]:
    dense = [seconds for form, seconds in row.times.items() if form.startswith("dense")]
    return (
        row.layer,
        "x".join(map(str, row.shape)),
        f"{row.density:.4f}",
        row.form,
        _ms(min(dense)) if dense else "",
        _ms(row.times[row.form]) if row.form in row.times else "",
        f"{row.ratio:.2f}" if row.times else "",
        row.note,
    )


def _ratios(table: Any) -> Figure:
    """Return the ratios of the layers; a point says layer, shape, density and times under the pointer."""
    forms = sorted({row.form for row in table.rows}, key=lambda form: (form.startswith("dense"), form))
    sparse = [form for form in forms if not form.startswith("dense")]
    roles = _DENSE | dict(zip(sparse, cycle(_ROLES), strict=False))
    series = []
    for form in forms:
        rows = [(index, row) for index, row in enumerate(table.rows, 1) if row.form == form]
        names = [_described(row) for _, row in rows]
        xs, ys = [index for index, _ in rows], [row.ratio for _, row in rows]
        series.append(Series(form, xs, ys, roles[form], points="full", names=names))
    caption = "Time of a layer's faster dense form over that of its chosen form; layers in the order of calls."
    return Figure("Ratio of each layer", "layer", "ratio", series, bottom=0.0, caption=caption)


def _latencies(table: Any) -> Figure:
    names = list(table.latency)
    groups = {"chosen": "eoi", "others": "muted"}
    series = []
    for label, role in groups.items():
        places = [index for index, name in enumerate(names) if (name == table.chosen) == (label == "chosen")]
        times = [1e3 * table.latency[names[index]] for index in places]
        series.append(Series(label, places, times, role, points="full"))
    shown = [name.replace(" ", "\n") for name in names]
    return Figure("Latency of the whole network", "", "milliseconds", series, bottom=0.0, names=shown)


def _described(row: Any) -> str:
    times = ", ".join(f"{form} {_ms(seconds)}" for form, seconds in row.times.items())
    return f"{row.layer} ({'x'.join(map(str, row.shape))}, density {row.density:.3f}): {times or row.note}"


def _given(table: Any) -> float:
    """The time of the fastest form of the network as it was given."""
    return float(min(table.latency[name] for name in _GIVEN if name in table.latency))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
