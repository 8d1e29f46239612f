"""The findings on one page: summary, spectra, orthogonality and gradients layer by layer."""

from collections.abc import Sequence

from orthosparse.lab.inspection.measures import Measured
from orthosparse.lab.inspection.tables import by_layer, remarks, summary
from orthosparse.lab.rendering.contents import Figure, Page, Section, Tile
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
