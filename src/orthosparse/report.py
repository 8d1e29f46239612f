"""The table that sparsify and prune return: counts and measurements of each layer, as text or HTML."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from orthosparse.layers import Layer, summarize
from orthosparse.masks import counts_of
from orthosparse.orthogonality import dead_inputs, dead_outputs, orthogonality_score
from orthosparse.strides import dilated, phases_read, structural_rank
from orthosparse.structures import ENTRIES, block_of
from orthosparse.tables import WORDS, Text, html_table, text_table

PROBLEMS = _EMPTY, _OUTPUTS, _INPUTS, _RANK, _TAP = (
    "are empty",
    "have unreachable outputs",
    "have unreachable inputs",
    "lose rank through their stride",
    "do not mix neighbouring positions",
)
_MOST_WARNINGS = 3  # more are counted, not printed one by one
_ORTHOGONAL = 1e-3  # scores below this are due to rounding


@dataclass(frozen=True)
class Row:
    """One layer in a `Report`.

    Attributes:
        layer: name of the layer.
        shape: shape of the weight.
        numel: number of weights, active or not.
        asked: active entries that the distribution gave to the layer.
        got: active entries of its mask.
        overlap: entries that are in both its mask and the distribution's, as a fraction of those in either; None if the
            distribution is random.
        orthogonality: ||A^T A - I||_F on the smaller side of A = weight / gain, over all matrices of the layer.
        outputs: number of output channels.
        dead_outputs: output channels without an active entry.
        inputs: number of input channels.
        dead_inputs: input channels without an active entry.
        note: what else to know about the layer.
        rank: for a strided convolution, how many directions it can pass at each position of its smaller signal, and how
            many its shape allows; None for other layers.
        taps: for a kernel with several taps, how many of them have an active entry, and how many there are; None for
            other layers.
    """

    layer: str
    shape: tuple[int, ...]
    numel: int
    asked: int
    got: int
    overlap: float | None
    orthogonality: float
    outputs: int
    dead_outputs: int
    inputs: int
    dead_inputs: int
    note: str
    rank: tuple[int, int] | None = None
    taps: tuple[int, int] | None = None

    @property
    def warnings(self) -> list[str]:
        """What is wrong with this layer, one sentence for each problem."""
        return [f"{self.layer}: {problem}" for problem in self.problems.values()]

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong with this layer, by kind of problem."""
        if not self.got:
            return {_EMPTY: "empty, nothing passes"}
        (rank, most), (used, taps) = self.rank or (0, 0), self.taps or (0, 0)
        found = {
            _OUTPUTS: f"{self.dead_outputs} of {self.outputs} outputs unreachable" if self.dead_outputs else "",
            _INPUTS: f"{self.dead_inputs} of {self.inputs} inputs unreachable" if self.dead_inputs else "",
            _RANK: f"rank {rank} of {most} through its stride" if rank < most else "",
            _TAP: f"weights at one of {taps} taps only, so that neighbouring positions do not mix" if used == 1 else "",
        }
        return {kind: problem for kind, problem in found.items() if problem}


@dataclass(frozen=True)
class Report:
    """The result of `sparsify` or `prune`; ``print`` it, show it in a notebook, or call ``to_dict()``.

    Attributes:
        rows: one row for each layer.
        asked: active entries that the distribution gave to all layers together; with blocks, the count before it is
            rounded to whole blocks.
        distribution: name of the distribution, or ``given densities`` if you gave densities by layer.
        scheme: name of the scheme; for `prune`, ``values kept``.
        gain: factor of the orthogonal weights; None for `prune`, which initializes nothing.
        seed: seed of all random numbers: ``seed=report.seed`` repeats the call.
        left: the matrices and kernels of the model that stayed dense, each with the reason.
        structure: the units that are active or not; the note of a layer says if it has other units.
        replaced: whether the weights were replaced; `prune` and the scheme ``base`` keep their values.
    """

    rows: tuple[Row, ...]
    asked: int
    distribution: str
    scheme: str
    gain: float | None
    seed: int
    left: Mapping[str, str] = field(default_factory=dict)
    structure: str = ENTRIES
    replaced: bool = False

    @property
    def numel(self) -> int:
        """Number of weights in all layers, active or not."""
        return sum(row.numel for row in self.rows)

    @property
    def got(self) -> int:
        """Number of active entries in all masks."""
        return sum(row.got for row in self.rows)

    @property
    def density(self) -> float:
        """The fraction of weights that are active."""
        return self.got / self.numel

    @property
    def warnings(self) -> list[str]:
        """The warnings of all layers."""
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
        """Return the warnings or, if there are many, one line with the number of layers of each kind."""
        if len(self.warnings) <= _MOST_WARNINGS:
            return [f"warning: {warning}" for warning in self.warnings]
        kinds = {kind: sum(kind in row.problems for row in self.rows) for kind in PROBLEMS}
        counted = [f"{number} of {len(self.rows)} layers {kind}" for kind, number in kinds.items() if number]
        return [f"warning: {', '.join(counted)} (report.warnings names them)"]

    def _total(self) -> str:
        units = "" if self.structure == ENTRIES else f", {self.structure}"
        gain = "" if self.gain is None else f", gain {self.gain:g}"
        what = f"{self.distribution} + {self.scheme}{units}{gain}, seed {self.seed}"
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
    """Return the cells, with a tone for those that are orthogonal, empty, unreachable, or notes."""
    tones = {
        "got": "bad" if not row.got else "",
        "orthogonality": "good" if row.orthogonality < _ORTHOGONAL else "",
        "dead out": "warning" if row.dead_outputs else "",
        "dead in": "warning" if row.dead_inputs else "",
        "note": "faint",
    }
    return {heading: (cell, tones[heading]) if tones.get(heading) else cell for heading, cell in cells.items()}


def row_of(
    layer: Layer,
    weight: torch.Tensor,
    mask: torch.Tensor,
    *,
    asked: int,
    overlap: float | None,
    gain: float,
    structure: str,
    floor: int = 0,
) -> Row:
    """Measure one layer, from its whole (not sharded) weight and mask, and the structure that was asked for."""
    # Each expert has its own outputs and inputs, as each group has.
    mask, groups = (mask.flatten(0, 1), layer.experts) if layer.stacked else (mask, layer.groups)
    out, into = (dead(mask, groups=groups, transposed=layer.transposed) for dead in (dead_outputs, dead_inputs))
    rank, stride_note = _stride(layer, weight)
    got = counts_of({layer.name: mask})[layer.name]
    notes = [
        _count_note(asked, got, floor),
        _structure_note(layer, structure),
        layer.note,
        stride_note,
        _zeros_note(layer, weight, out),
    ]
    frozen = [] if layer.parameter().requires_grad else ["frozen: keeps this start"]
    return Row(
        layer=layer.name,
        shape=tuple(layer.shape),
        numel=layer.numel,
        asked=asked,
        got=got,
        overlap=overlap,
        orthogonality=_score(layer, weight, gain),
        outputs=len(out),
        dead_outputs=int(out.sum()),
        inputs=len(into),
        dead_inputs=int(into.sum()),
        note="; ".join([*filter(None, notes), *frozen]),
        rank=rank,
        taps=(int(mask.flatten(2).any(0).any(0).sum()), layer.taps) if layer.taps > 1 else None,
    )


def _count_note(asked: int, got: int, floor: int) -> str:
    """Say how the count of a layer was changed, if it was."""
    if asked < floor:
        return f"raised to its floor {floor}" if got >= floor else f"partial: floor {floor}"
    return f"gave {asked - got}" if got < asked else f"took {got - asked}" if got > asked else ""


def _zeros_note(layer: Layer, weight: torch.Tensor, dead: torch.Tensor) -> str:
    """Say how many outputs of a convolution have active weights that are all zero, if any."""
    if layer.taps == 1:
        return ""
    zeros = dead_outputs(weight, groups=layer.groups, transposed=layer.transposed) & ~dead
    return f"outputs that start at zero: {int(zeros.sum())}" if zeros.any() else ""


def _structure_note(layer: Layer, structure: str) -> str:
    """Say why a layer has other units than `structure`, if so."""
    if layer.structure == structure:
        return ""
    sides = " x ".join(map(str, layer.kernel))
    reason = f"a kernel of {sides}" if layer.taps > 1 else f"{block_of(structure)} does not divide its sides"
    reason = "a stack of experts" if layer.stacked else reason
    return f"{layer.structure}: {reason}"


def _score(layer: Layer, weight: torch.Tensor, gain: float) -> float:
    """Return the score of all matrices of the layer together, as the blocks of one block-diagonal map."""
    own: dict[str, Any] = {"gain": gain, "stride": layer.geometry["stride"] if layer.strided else 1}
    own["dtype"] = torch.float64 if weight.dtype == torch.float64 else torch.float32
    kernels = _on_signal(layer, weight)
    return math.hypot(*(orthogonality_score(each.flatten(0, 1), groups=len(each), **own) for each in kernels))


def _on_signal(layer: Layer, weight: torch.Tensor) -> list[torch.Tensor]:
    """Return the kernels, dilated if the layer has a stride; otherwise dilation does not matter for large signals."""
    kernels, dilation = layer.kernels(weight), layer.geometry["dilation"]
    if not layer.strided or max(dilation) == 1:
        return kernels
    return [dilated(each.flatten(0, 1), dilation).unflatten(0, each.shape[:2]) for each in kernels]


def _stride(layer: Layer, weight: torch.Tensor) -> tuple[tuple[int, int] | None, str]:
    """Return rank and largest possible rank of a strided convolution, and a note if its weights skip pixels."""
    if not layer.strided:
        return None, ""
    stride = layer.geometry["stride"]
    kernels, pixels = _on_signal(layer, weight), math.prod(stride)
    ranks = [structural_rank(each, stride) for each in kernels]
    read = max(phases_read(each, stride) for each in kernels)
    step = "x".join(map(str, stride if len(set(stride)) > 1 else stride[:1]))
    note = f"stride {step}: reads {read} of {pixels} pixels" if read < pixels else ""
    return (sum(rank for rank, _ in ranks), sum(most for _, most in ranks)), note
