"""The findings in tables, and on one page: summary, spectra, orthogonality and gradients layer by layer."""

from collections.abc import Sequence

from orthosparse.lab.inspection.measures import Measured
from orthosparse.lab.rendering.contents import Figure, Page, Section, Table, Tile, plain_table
from orthosparse.lab.rendering.figures import histograms, lines, profiles
from orthosparse.lab.rendering.theme import LABELS

_WIDE = 100.0  # ratio of values from which an axis is logarithmic


def page_of(title: str, lead: str, found: Sequence[Measured], advice: str, foot: Sequence[str]) -> Page:
    """Return the page."""
    tiles = [
        Tile(
            f"{LABELS[each.name]}: mean singular value",
            f"{each.spectrum.mean:.3g}",
            f"density {each.density:.4f}",
            each.name,
        )
        for each in found
    ]
    sections = [
        Section("Starts compared", advice, [summary(found)], [_spectra(found), *_profiles(found)]),
        Section("Layer by layer", tables=[by_layer(found, folded=_layers(found[-1]))], notes=remarks(found)),
    ]
    return Page(title, lead, tiles, sections, foot)


def _layers(found: Measured) -> str:
    count = len(found.orthogonality)
    return f"{count} layer{'' if count == 1 else 's'}"


def _spectra(found: Sequence[Measured]) -> Figure:
    """All singular values as histograms where they are known, else the largest of the first input by rank."""
    samples, listed = found[0].spectrum.shape
    if not all(each.spectrum.exact for each in found):
        ranks = {each.name: ([*range(1, listed + 1)], each.spectrum[0].tolist()) for each in found}
        caption = f"Of the input-output Jacobian, {listed} of one input."
        return lines("Largest singular values", ranks, x="rank", y="singular value", log=True, caption=caption)
    values = {each.name: each.spectrum.values.flatten().tolist() for each in found}
    positive = [value for several in values.values() for value in several if value > 0]
    wide = bool(positive) and max(positive) > _WIDE * min(positive)
    caption = f"Of the input-output Jacobian, all of {samples} inputs."
    return histograms("Singular values", values, x="singular value", log=wide, caption=caption)


def _profiles(found: Sequence[Measured]) -> list[Figure]:
    scores = {each.name: [score.score for score in each.orthogonality.values()] for each in found}
    norms = {each.name: [each.flow.norms.get(name, 0.0) for name in each.orthogonality] for each in found}
    live = {each.name: [paths.effective for paths in each.effective.layers.values()] for each in found}
    depth = "Layers in the order of the model; what is 0 is left out."
    return [
        profiles("Distance from orthogonality", scores, y="||A'A - I||", caption=depth),
        profiles("Gradient norm", norms, y="norm", caption=depth),
        profiles("Effective density", live, y="active weights on a path", caption=depth),
    ]


def summary(found: Sequence[Measured]) -> Table:
    """Return a row for each start."""
    headings = (
        "start",
        "density",
        "effective",
        "dead units",
        "mean singular value",
        "largest",
        "least",
        "worst orthogonality",
        "gradient norm",
        "after a step",
    )
    rows = [_summary_row(each) for each in found]
    return plain_table(headings, rows, roles=[each.name for each in found], title="Starts")


def by_layer(found: Sequence[Measured], *, most: int | None = None, folded: str = "") -> Table:
    """Return a row for each layer: counts and dead units of the last start, orthogonality and gradients of all.

    Args:
        most: leave out layers in the middle beyond this number.
    """
    asked = found[-1]
    headings = ["layer", "shape", "active", "density", "dead in", "dead out"]
    headings += [f"orthogonality {LABELS[each.name]}" for each in found]
    headings += [f"gradient {LABELS[each.name]}" for each in found] + ["note"]
    rows = [_layer_row(name, found) for name in asked.orthogonality]
    if most is not None and len(rows) > most:
        gap = [f"... {len(rows) - most} more"] + [""] * (len(headings) - 1)
        rows = [*rows[: most // 2], gap, *rows[len(rows) - (most - most // 2) :]]
    return plain_table(headings, rows, text=(0, 1, len(headings) - 1), folded=folded, title="Layers")


def remarks(found: Sequence[Measured]) -> list[str]:
    """Return what a reader should know, in words: layers without a gradient, and what sparsify warns of."""
    dense, asked = found[0], found[-1]
    still = [name for name, norm in dense.flow.norms.items() if norm == 0]
    layers = "1 layer gets" if len(still) == 1 else f"{len(still)} layers get"
    lines = [f"{layers} no gradient, even from the dense start (a scale after them that starts at 0?)"]
    return lines * bool(still) + (asked.report.warnings if asked.report is not None else [])


def _summary_row(found: Measured) -> list[str]:
    spectrum = found.spectrum
    about = "" if spectrum.exact else f" ± {spectrum.mean_error:.1g}"
    return [
        LABELS[found.name],
        f"{found.density:.4f}",
        f"{found.effective_density:.4f}",
        f"{found.dead_units:,}",
        f"{spectrum.mean:.3g}{about}",
        f"{spectrum.max:.4g}",
        f"{'' if spectrum.exact else '≤ '}{spectrum.min:.3g}",
        f"{max(score.score for score in found.orthogonality.values()):.1e}",
        f"{found.flow.norm:.3g}",
        f"{found.flow.norm_after:.3g}",
    ]


def _layer_row(name: str, found: Sequence[Measured]) -> list[str]:
    asked = found[-1]
    row = None if asked.report is None else next((row for row in asked.report.rows if row.layer == name), None)
    paths = asked.effective.layers[name]
    notes = [asked.orthogonality[name].note if row is None else row.note, "" if row is not None else "left dense"]
    return [
        name,
        "" if row is None else "x".join(map(str, row.shape)),
        "" if row is None else f"{row.got:,}",
        "" if row is None else f"{row.got / row.numel:.4f}",
        f"{paths.dead_inputs}",
        f"{paths.dead_outputs}",
        *(f"{each.orthogonality[name].score:.1e}" for each in found),
        *(f"{each.flow.norms.get(name, float('nan')):.1e}" for each in found),
        "; ".join(filter(None, notes)),
    ]
