"""What deploy has measured, as tables and on a page."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from orthosparse.lab.deployment.shipping import PURPOSES
from orthosparse.lab.rendering.contents import Figure, Page, Section, Series, Table, Tile, plain_table

_DENSE = {"dense": "muted", "dense channels-last": "ai"}  # the colours of dense forms
_ROLES = ("eoi", "sao", "scaled", "base")  # and those of other forms


def page_of(title: str, lead: str, table: Any, files: Mapping[str, int], foot: Sequence[str]) -> Page:
    """Return the page of one call of deploy.

    Args:
        table: that deploy returned.
        files: the bytes of each file beside the page.
    """
    latency, (layers, network) = table.latency_text(), tables_of(table)
    times = f"{latency[table.chosen]} instead of {latency[table.given]}"
    tiles = [
        Tile("times as fast as the best dense form", f"{table.ratio:.2f}", times),
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
    given = table.latency[table.given]
    forms = [
        (name, time, f"{given / table.latency[name]:.2f}x", "chosen" if name == table.chosen else "")
        for name, time in table.latency_text().items()
    ]
    return (
        plain_table(table.headings, [row.cells() for row in table.rows], text=(0, 1, 3, 7)),
        plain_table(("form", "latency", "ratio", "choice"), forms, text=(0, 3)),
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
    times, chosen = [1e3 * seconds for seconds in table.latency.values()], list(table.latency).index(table.chosen)
    others = [index for index in range(len(times)) if index != chosen]
    series = [
        Series("chosen", [chosen], [times[chosen]], "eoi", points="full"),
        Series("others", others, [times[index] for index in others], "muted", points="full"),
    ]
    shown = [name.replace(" ", "\n") for name in table.latency]
    return Figure("Latency of the whole network", "", "milliseconds", series, bottom=0.0, names=shown)


def _described(row: Any) -> str:
    times = ", ".join(f"{form} {time}" for form, time in row.times_text().items())
    return f"{row.layer} ({'x'.join(map(str, row.shape))}, density {row.density:.3f}): {times or row.note}"
