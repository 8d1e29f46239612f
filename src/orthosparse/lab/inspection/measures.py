"""Everything that is measured of one start: spectrum, orthogonality, live paths, gradients."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import orthosparse
from orthosparse import isometry
from orthosparse.lab.inspection.starts import Start
from orthosparse.randomness import derive

_SMALL = 512  # smaller side of a Jacobian up to which all its singular values are computed
_LISTED = 4  # of each sample, where they are not

Pick: TypeAlias = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Effort:
    """How far the singular values are pursued.

    Attributes:
        samples: inputs whose Jacobian is looked at, of those that are given; None: 4, or 1 where it is too large to
            have whole.
        probes, steps, tolerance: of the matrix-free method, see `isometry.singular_values`.
    """

    samples: int | None = None
    probes: int = 4
    steps: int = 6
    tolerance: float = 1e-3


@dataclass(frozen=True, eq=False)
class Measured:
    """What was found of one start; layers by name, in the model's order. The dense one has no report."""

    name: str
    report: orthosparse.Report | None
    spectrum: isometry.Spectrum
    orthogonality: dict[str, isometry.LayerScore]
    effective: isometry.EffectiveDensity
    flow: isometry.GradientFlow

    @property
    def density(self) -> float:
        """The fraction of active weights."""
        return 1.0 if self.report is None else self.report.density

    @property
    def dead_units(self) -> int:
        """Outputs of layers that no live path leads through."""
        return sum(paths.dead_outputs for paths in self.effective.layers.values())


def measure(
    start: Start, batch: tuple[Tensor, Tensor], *, gain: float, output: Pick | None, effort: Effort, seed: int
) -> Measured:
    """Return all measures of one start.

    Args:
        output: picks the logits out of what the model returns; None where it returns them.
    """
    one, layers = batch[0][:1], orthosparse.find_layers(start.model)
    return Measured(
        start.name,
        start.report,
        _spectrum(start.model, batch[0], output, effort, seed),
        isometry.orthogonality_score(start.model, batch[0][:2], layers=layers, gain=gain),
        isometry.effective_density(start.model, one, output=output),
        isometry.gradient_flow(start.model, loss_of(output), batch, layers=layers, generator=derive(seed, "flow")),
    )


def loss_of(output: Pick | None) -> Callable[[Any, Tensor], Tensor]:
    """Return the cross-entropy of the logits that `output` picks."""
    return lambda result, labels: cross_entropy(result if output is None else output(result), labels)


def plain(measured: Measured) -> dict[str, Any]:
    """Return the measures of one start as plain values, ready for JSON."""
    spectrum, effective, flow = measured.spectrum, measured.effective, measured.flow
    shared = ("mean", "std", "max", "min", "error", "mean_error", "products", "exact")
    return {
        "density": measured.density,
        "effective_density": effective.total,
        "dead_units": measured.dead_units,
        "singular_values": {name: getattr(spectrum, name) for name in shared} | {"values": spectrum.values.tolist()},
        "gradient_norm": flow.norm,
        "gradient_norm_after_step": flow.norm_after,
        "loss": flow.loss,
        "layers": {
            name: {
                "orthogonality": score.score,
                "note": score.note,
                "gradient_norm": flow.norms.get(name),
                "effective_density": effective.layers[name].effective,
                "dead_inputs": effective.layers[name].dead_inputs,
                "dead_outputs": effective.layers[name].dead_outputs,
            }
            for name, score in measured.orthogonality.items()
        },
        "report": None if measured.report is None else measured.report.to_dict(),
    }


def _spectrum(model: nn.Module, images: Tensor, output: Pick | None, effort: Effort, seed: int) -> isometry.Spectrum:
    with torch.no_grad():
        result = copy.deepcopy(model).eval()(images[:1])
    side = min(images[0].numel(), (result if output is None else output(result))[0].numel())
    small = side <= _SMALL
    return isometry.singular_values(
        model,
        images[: effort.samples or (4 if small else 1)],
        output=output,
        k=None if small else min(_LISTED, side),
        probes=effort.probes,
        steps=effort.steps,
        tolerance=effort.tolerance,
        generator=derive(seed, "probes"),
    )
