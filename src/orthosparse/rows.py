"""One row of a report: what a layer was asked for, what it got, what was measured, and what is wrong with it."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from orthosparse.layers import Layer
from orthosparse.masks import counts_of
from orthosparse.orthogonality import dead_inputs, dead_outputs, orthogonality_score
from orthosparse.strides import dilated, phases_read, structural_rank
from orthosparse.structures import block_of

PROBLEMS = _EMPTY, _OUTPUTS, _INPUTS, _RANK = (
    "are empty",
    "have unreachable outputs",
    "have unreachable inputs",
    "lose rank through their stride",
)


@dataclass(frozen=True)
class Row:
    """One layer.

    Attributes:
        asked: active entries that the distribution gave it.
        got: active entries of its mask.
        overlap: of the entries in its mask or in the distribution's, the share that are in both; None where the
            distribution's are random.
        orthogonality: ||A^T A - I||_F on the smaller side, of weight / gain, all its matrices together.
        dead_outputs: output channels without an active entry.
        dead_inputs: input channels without an active entry.
        rank: of a strided convolution, at most how many directions it passes at each position of its smaller signal,
            and how many its shape allows; None for others.
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

    @property
    def warnings(self) -> list[str]:
        """What is wrong with this layer, in words."""
        return [f"{self.layer}: {problem}" for problem in self.problems.values()]

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong with this layer, by the kind of it."""
        if not self.got:
            return {_EMPTY: "empty, nothing passes"}
        rank, most = self.rank or (0, 0)
        found = {
            _OUTPUTS: f"{self.dead_outputs} of {self.outputs} outputs unreachable" if self.dead_outputs else "",
            _INPUTS: f"{self.dead_inputs} of {self.inputs} inputs unreachable" if self.dead_inputs else "",
            _RANK: f"rank {rank} of {most} through its stride" if rank < most else "",
        }
        return {kind: problem for kind, problem in found.items() if problem}


def row_of(
    layer: Layer,
    weight: torch.Tensor,
    mask: torch.Tensor,
    *,
    asked: int,
    overlap: float | None,
    gain: float,
    note: str = "",
) -> Row:
    """Measure one layer, given its whole (not sharded) weight and mask."""
    # To each expert its own outputs and inputs, as to each group.
    mask, groups = (mask.flatten(0, 1), layer.experts) if layer.stacked else (mask, layer.groups)
    out, into = (dead(mask, groups=groups, transposed=layer.transposed) for dead in (dead_outputs, dead_inputs))
    rank, stride_note = _stride(layer, weight)
    return Row(
        layer=layer.name,
        shape=tuple(layer.shape),
        numel=layer.numel,
        asked=asked,
        got=counts_of({layer.name: mask})[layer.name],
        overlap=overlap,
        orthogonality=_score(layer, weight, gain),
        outputs=len(out),
        dead_outputs=int(out.sum()),
        inputs=len(into),
        dead_inputs=int(into.sum()),
        note="; ".join(filter(None, [note, layer.note, stride_note, _frozen_note(layer)])),
        rank=rank,
    )


def structure_note(layer: Layer, structure: str) -> str:
    """Say why a layer has other units than `structure`, if so."""
    if layer.structure == structure:
        return ""
    sides = " x ".join(map(str, layer.kernel))
    reason = f"a kernel of {sides}" if layer.taps > 1 else f"{block_of(structure)} does not divide its sides"
    reason = "a stack of experts" if layer.stacked else reason
    return f"{layer.structure}: {reason}"


def _score(layer: Layer, weight: torch.Tensor, gain: float) -> float:
    """All matrices of the layer together, as the blocks of one block-diagonal map."""
    own: dict[str, Any] = {"gain": gain, "stride": layer.geometry["stride"] if layer.strided else 1}
    own["dtype"] = torch.float64 if weight.dtype == torch.float64 else torch.float32
    kernels = _on_signal(layer, weight)
    return math.hypot(*(orthogonality_score(each.flatten(0, 1), groups=len(each), **own) for each in kernels))


def _on_signal(layer: Layer, weight: torch.Tensor) -> list[torch.Tensor]:
    """Return the layer's kernels; without a stride, dilation makes no difference to large signals."""
    kernels, dilation = layer.kernels(weight), layer.geometry["dilation"]
    if not layer.strided or max(dilation) == 1:
        return kernels
    return [dilated(each.flatten(0, 1), dilation).unflatten(0, each.shape[:2]) for each in kernels]


def _stride(layer: Layer, weight: torch.Tensor) -> tuple[tuple[int, int] | None, str]:
    """Return the rank of a strided convolution and the most it could be, and which pixels its weights leave out."""
    if not layer.strided:
        return None, ""
    stride = layer.geometry["stride"]
    kernels, pixels = _on_signal(layer, weight), math.prod(stride)
    ranks = [structural_rank(each, stride) for each in kernels]
    read = max(phases_read(each, stride) for each in kernels)
    step = "x".join(map(str, stride if len(set(stride)) > 1 else stride[:1]))
    note = f"stride {step}: reads {read} of {pixels} pixels" if read < pixels else ""
    return (sum(rank for rank, _ in ranks), sum(most for _, most in ranks)), note


def _frozen_note(layer: Layer) -> str:
    return "" if layer.parameter().requires_grad else "frozen: keeps this start"
