"""Does the paper hold? One file for each of its claims: its rule, and our answer by the numbers of the items."""

from collections.abc import Callable, Mapping, Sequence

from orthosparse.lab.paper._chapters import Chapter
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, OPEN, PARTLY, Chapters, Claim
from orthosparse.lab.paper.claims.activations import activations
from orthosparse.lab.paper.claims.angles import angles
from orthosparse.lab.paper.claims.cost import cost
from orthosparse.lab.paper.claims.deep_networks import deep_networks
from orthosparse.lab.paper.claims.dynamic import dynamic
from orthosparse.lab.paper.claims.loss_curves import loss_curves
from orthosparse.lab.paper.claims.ranks import ranks
from orthosparse.lab.paper.claims.snip import snip
from orthosparse.lab.paper.claims.spectra import spectra

__all__ = ["CLAIMS", "FAILS", "HOLDS", "OPEN", "PARTLY", "Claim", "claims_of"]

CLAIMS: Mapping[str, Callable[[Chapters], Claim]] = {
    "deep_networks": deep_networks,
    "ranks": ranks,
    "activations": activations,
    "cost": cost,
    "spectra": spectra,
    "loss_curves": loss_curves,
    "snip": snip,
    "dynamic": dynamic,
    "angles": angles,
}


def claims_of(chapters: Sequence[Chapter]) -> dict[str, Claim]:
    """Return every claim with its answer."""
    items = {chapter.name: chapter for chapter in chapters}
    return {name: claim(items) for name, claim in CLAIMS.items()}
