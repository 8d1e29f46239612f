"""Everything that is measured of the starts of a model: spectrum, orthogonality, live paths, gradients."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

import orthosparse
from orthosparse import isometry
from orthosparse.lab.inspection.head import Head
from orthosparse.lab.inspection.inputs import Inputs
from orthosparse.lab.inspection.starts import Plan, Start, names_of_starts, starts
from orthosparse.lab.inspection.tokens import FromEmbeddings
from orthosparse.randomness import derive

_SMALL = 512  # smaller side of a Jacobian up to which all its singular values are computed
_LISTED = 4  # of each sample, where they are not
_PARTS = 4  # of the work on a start, once it is made
_PROBES, _TOLERANCE = 4, 1e-3  # of the matrix-free method


@dataclass(frozen=True)
class Effort:
    """How far the singular values are pursued.

    Attributes:
        samples: inputs whose Jacobian is computed, of those that are given; None: 4, or 1 where it is too large to
            compute in full.
        steps: of the matrix-free method, see `isometry.singular_values`.
    """

    samples: int | None = None
    steps: int = 6


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
    def effective_density(self) -> float:
        """The fraction of weights that are active and on a live path, of the layers that `density` is of."""
        if self.report is None:
            return self.effective.total
        live = sum(int(self.effective.layers[row.layer].live.sum()) for row in self.report.rows)
        return live / self.report.numel

    @property
    def dead_units(self) -> int:
        """Outputs of layers that no live path leads through."""
        return sum(paths.dead_outputs for paths in self.effective.layers.values())


def measure(
    start: Start,
    inputs: Inputs,
    *,
    gain: float,
    head: Head,
    effort: Effort,
    seed: int,
    announce: Callable[[str], None] = lambda _: None,
) -> Measured:
    """Return all measures of one start.

    Args:
        announce: called with what is measured, before it is.
    """
    model, x = _differentiable(start.model, inputs)
    layers, batch = orthosparse.find_layers(start.model), (inputs.x, inputs.labels)
    announce(f"{start.name}: singular values")
    spectrum = _spectrum(model, x, head, effort, seed)
    announce(f"{start.name}: orthogonality")
    scores = isometry.orthogonality_score(model, x[:2], layers=layers, gain=gain)
    announce(f"{start.name}: live paths")
    effective = isometry.effective_density(start.model, inputs.x[:1], output=head.pick)
    announce(f"{start.name}: gradients")
    flow = isometry.gradient_flow(start.model, head.loss, batch, layers=layers, generator=derive(seed, "flow"))
    return Measured(start.name, start.report, spectrum, scores, effective, flow)


def plain(measured: Measured) -> dict[str, Any]:
    """Return the measures of one start as plain values, ready for JSON."""
    spectrum, effective, flow = measured.spectrum, measured.effective, measured.flow
    shared = ("mean", "std", "max", "min", "error", "mean_error", "products", "exact")
    return {
        "density": measured.density,
        "effective_density": measured.effective_density,
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


def _differentiable(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, Tensor]:
    """The model as a function of a floating-point input, and that input: of tokens, what their embedding returns."""
    if inputs.embedding is None:
        return model, inputs.x
    behind = FromEmbeddings(model, inputs.embedding, inputs.x)
    return behind, behind.embedded()


def _spectrum(model: nn.Module, x: Tensor, head: Head, effort: Effort, seed: int) -> isometry.Spectrum:
    with torch.no_grad():
        result = copy.deepcopy(model).eval()(x[:1])
    side = min(x[0].numel(), head.logits(result)[0].numel())
    small = side <= _SMALL
    return isometry.singular_values(
        model,
        x[: effort.samples or (4 if small else 1)],
        output=head.pick,
        k=None if small else min(_LISTED, side),
        probes=_PROBES,
        steps=effort.steps,
        tolerance=_TOLERANCE,
        generator=derive(seed, "probes"),
    )


def inspect_model(
    model: nn.Module,
    plan: Plan,
    inputs: Inputs,
    *,
    head: Head | None = None,
    effort: Effort | None = None,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Measured]:
    """Return the measures of the dense start, of base and of the asked scheme; the model is left as it was.

    Args:
        head: where the logits are in what the model returns.
        progress: called as ``progress(what, done, total)`` before each part of the work and at its end.
    """
    head, effort, names = head or Head(), effort or Effort(), names_of_starts(plan)
    done, total = count(), len(names) * (1 + _PARTS)

    def begin(what: str) -> None:
        if progress is not None:
            progress(what, next(done), total)

    made, found = starts(model, plan, (inputs.x, inputs.labels), loss=head.loss, seed=seed), []
    for name in names:
        begin(f"{name}: start")
        found.append(measure(next(made), inputs, gain=plan.gain, head=head, effort=effort, seed=seed, announce=begin))
    begin("done")
    return found[::-1]
