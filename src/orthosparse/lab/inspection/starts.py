"""The starts that are compared: the dense one, and what base and the asked scheme make of it."""

import copy
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import orthosparse
from orthosparse.lab.models import dense_init
from orthosparse.randomness import derive
from orthosparse.registry import lookup

MODES = {
    "calibrated": "eval mode, batch norms with the statistics of the inputs",
    "eval": "eval mode, batch norms as they come",
    "train": "train mode",
}


@dataclass(frozen=True)
class Plan:
    """How the model is made sparse and measured.

    Attributes:
        kind: the dense start, one of DENSE_INITS; ``default`` keeps the weights the model came with.
        mode: one of MODES.
        options: of the distribution or of the scheme.
    """

    density: float = 0.1
    distribution: str = "erk"
    scheme: str = "eoi"
    kind: str = "conv_orthogonal"
    gain: float = 1.0
    bias_std: float = 0.0
    floor: str = "raise"
    exclude: tuple[str, ...] = ()
    mode: str = "calibrated"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.options:
            if name in {each.name for each in fields(self)}:
                raise ValueError(
                    f"options: expected those of the distribution or the scheme; got {name!r}, a field itself"
                )


@dataclass(frozen=True, eq=False)
class Start:
    """A model ready to be measured, and what sparsify said of it; None for the dense one."""

    name: str
    model: nn.Module
    report: orthosparse.Report | None


def names_of_starts(plan: Plan) -> list[str]:
    """Return the starts in the order they are made in: the asked scheme, base (once where that is asked for), dense.

    Example:
        >>> names_of_starts(Plan(scheme="ai")), names_of_starts(Plan(scheme="base"))
        (['ai', 'base', 'dense'], ['base', 'dense'])
    """
    return [*dict.fromkeys((plan.scheme, "base", "dense"))]


def starts(model: nn.Module, plan: Plan, batch: tuple[Tensor, Tensor], *, loss: Any, seed: int) -> Iterator[Start]:
    """Yield the asked scheme, base (once where that is asked for), and the dense start, one model at a time in memory.

    The asked one comes first: what it refuses is refused before anything is measured. The sparse ones are given the
    same masks.
    """
    dense = copy.deepcopy(model)
    dense_init(dense, plan.kind, gain=plan.gain, bias_std=plan.bias_std, generator=derive(seed, "dense"))
    for scheme in names_of_starts(plan)[:-1]:
        sparse = copy.deepcopy(dense)
        report = orthosparse.sparsify(
            sparse,
            plan.density,
            distribution=plan.distribution,
            scheme=scheme,
            batch=batch,
            loss=loss,
            exclude=plan.exclude,
            gain=plan.gain,
            bias_std=plan.bias_std,
            floor=plan.floor,
            generator=derive(seed, "sparse"),
            **_options_for(scheme, plan),
        )
        yield Start(scheme, prepared(sparse, plan.mode, batch[0]), report)
    yield Start("dense", prepared(dense, plan.mode, batch[0]), None)


def prepared(model: nn.Module, mode: str, images: Tensor) -> nn.Module:
    """Put the model, which is changed and returned, into one of MODES.

    ``calibrated`` gives every batch norm the mean and variance that `images` have there, and then holds them fixed: a
    fresh batch norm in eval mode would let the signal through unnormalised, and one in train mode couples the samples.
    """
    lookup(MODES, mode, "mode")
    model.train(mode == "train")
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    if mode != "calibrated" or not norms:
        return model
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches seen, of which there is one
        norm.train()
    with torch.no_grad():
        model(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
    return model


def _options_for(scheme: str, plan: Plan) -> dict[str, Any]:
    """The options that were given; for the scheme that was not asked for, those of the distribution alone."""
    if scheme == plan.scheme:
        return dict(plan.options)
    distribution = lookup(orthosparse.DISTRIBUTIONS, plan.distribution, "distribution")
    taken = set(inspect.signature(distribution).parameters)
    return {name: value for name, value in plan.options.items() if name in taken}
