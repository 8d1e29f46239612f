"""The table that sparsify and prune return: one row a layer, totals and warnings, as text and for notebooks."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from orthosparse.layers import summarize
from orthosparse.rows import PROBLEMS, Row
from orthosparse.structures import ENTRIES
from orthosparse.tables import WORDS, Text, html_table, text_table

_MOST_WARNINGS = 3  # that are printed one by one
_ORTHOGONAL = 1e-3  # a score that rounding alone can leave


@dataclass(frozen=True)
class Report:
    """What one call of sparsify did; ``print`` it, show it in a notebook, or take ``to_dict()``.

    Attributes:
        rows: one for each layer.
        asked: active entries that the distribution gave to all layers together; with blocks, what the density asks for
            before it is rounded to whole ones.
        distribution: its name, or that densities were given by layer.
        scheme: its name; of `prune`, that values were kept.
        gain: what orthogonal weights were multiplied by.
        seed: the seed everything was drawn from, wherever it came from: ``seed=report.seed`` repeats the call.
        left: the matrices and kernels of the model that stayed dense, each with the reason.
        structure: the units that are active or not; a layer that has others says so in its note.
        replaced: whether the weights are new ones; `prune` and the scheme ``base`` keep the values that were there.
    """

    rows: tuple[Row, ...]
    asked: int
    distribution: str
    scheme: str
    gain: float
    seed: int
    left: Mapping[str, str] = field(default_factory=dict)
    structure: str = ENTRIES
    replaced: bool = False

    @property
    def numel(self) -> int:
        """Weights of the layers, active or not."""
        return sum(row.numel for row in self.rows)

    @property
    def got(self) -> int:
        """Active entries of all masks."""
        return sum(row.got for row in self.rows)

    @property
    def density(self) -> float:
        """The fraction of weights that are active."""
        return self.got / self.numel

    @property
    def warnings(self) -> list[str]:
        """What is wrong, in words, layer by layer."""
        return [warning for row in self.rows for warning in row.warnings]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        totals = {"numel": self.numel, "got": self.got, "density": self.density, "warnings": self.warnings}
        return asdict(self) | totals

    def __str__(self) -> str:
        table = [*map(_cells, self.rows)]
        lines = text_table([*table[0]], [[*cells.values()] for cells in table], left=WORDS)
        return "\n".join([lines, "", *self._last_lines(), *self._warning_lines()])

    def _last_lines(self) -> list[str]:
        replaced = (
            [f"{self.scheme} replaced the weights (prune keeps those of a trained model)"] if self.replaced else []
        )
        left = [f"left dense: {summarize(self.left)}"] if self.left else []
        return [self._total(), *replaced, *left]

    def _warning_lines(self) -> list[str]:
        """Return the warnings, or where they are many, one line that counts the layers of each kind."""
        if len(self.warnings) <= _MOST_WARNINGS:
            return [f"warning: {warning}" for warning in self.warnings]
        kinds = {kind: sum(kind in row.problems for row in self.rows) for kind in PROBLEMS}
        counted = [f"{number} of {len(self.rows)} layers {kind}" for kind, number in kinds.items() if number]
        return [f"warning: {', '.join(counted)} (report.warnings names them)"]

    def _total(self) -> str:
        units = "" if self.structure == ENTRIES else f", {self.structure}"
        what = f"{self.distribution} + {self.scheme}{units}, gain {self.gain:g}, seed {self.seed}"
        return f"{self.got:,} of {self.numel:,} weights active = {self.density:.6f} (asked {self.asked:,}); {what}"

    def _repr_html_(self) -> str:
        table = [*map(_cells, self.rows)]
        rows = [[*_toned(row, cells).values()] for row, cells in zip(self.rows, table, strict=True)]
        warnings = [(line, "warning") for line in self._warning_lines()]
        return html_table([*table[0]], rows, [*self._last_lines(), *warnings])


def _cells(row: Row) -> dict[str, str]:
    return {
        "layer": row.layer,
        "shape": "x".join(map(str, row.shape)),
        "asked": f"{row.asked:,}",
        "got": f"{row.got:,}",
        "density": f"{row.got / row.numel:.4f}",
        **({} if row.overlap is None else {"overlap": f"{row.overlap:.2f}"}),
        "orthogonality": f"{row.orthogonality:.1e}",
        "dead out": f"{row.dead_outputs}/{row.outputs}",
        "dead in": f"{row.dead_inputs}/{row.inputs}",
        "note": row.note,
    }


def _toned(row: Row, cells: dict[str, str]) -> dict[str, Text]:
    """Return the cells with a tone where they mean something: orthogonal, empty, unreachable, or only a note."""
    tones = {
        "got": "bad" if not row.got else "",
        "orthogonality": "good" if row.orthogonality < _ORTHOGONAL else "",
        "dead out": "warning" if row.dead_outputs else "",
        "dead in": "warning" if row.dead_inputs else "",
        "note": "faint",
    }
    return {heading: (cell, tones[heading]) if tones.get(heading) else cell for heading, cell in cells.items()}
