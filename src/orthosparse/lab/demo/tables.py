"""The demo's numbers in rows: of the sampler, and of the networks."""

from collections.abc import Mapping, Sequence

from orthosparse.lab.demo.isometries import Isometry
from orthosparse.lab.demo.sampler import Sample
from orthosparse.lab.demo.training import History
from orthosparse.lab.rendering.contents import Table, plain_table
from orthosparse.lab.rendering.theme import LABELS


def sampler_table(samples: Sequence[Sample]) -> Table:
    """Return density, orthogonality score, extreme singular values and time of each matrix."""
    rows = [
        (
            sample.title,
            f"{sample.density:.6f}",
            f"{sample.score:.1e}",
            f"{float(sample.singular_values.min()):.6f}",
            f"{float(sample.singular_values.max()):.6f}",
            f"{1000 * sample.seconds:.2f} ms",
        )
        for sample in samples
    ]
    headings = ("matrix", "density", "orthogonality score", "least singular value", "largest", "time")
    title = f"Matrices of {len(samples[0].mask)} x {len(samples[0].mask)}"
    return plain_table(headings, rows, roles=[sample.role for sample in samples], title=title)


def network_table(
    isometries: Mapping[str, Isometry], densities: Mapping[str, float], history: History, *, title: str = ""
) -> Table:
    """Return a row for each start: density and singular values, loss and accuracy."""
    headings = ("start", "density", "mean singular value", "largest", "training loss", "test accuracy")
    rows = [[LABELS[name], f"{densities[name]:.4f}", f"{s.mean:.3g}", f"{s.max:.3g}"] for name, s in isometries.items()]
    for row, loss, accuracy in zip(rows, history.losses[-1], history.accuracies[-1], strict=True):
        row += [f"{loss:.3f}", f"{100 * accuracy:.1f} %"]
    return plain_table(headings, rows, roles=list(isometries), title=title)
