"""The flow of a model whose weights and inputs are all positive, and which models have one."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from orthosparse.aliases import Masks, Scores
from orthosparse.distributions._inputs import describe, keys_of, outputs_on
from orthosparse.hardware import on_float64_device
from orthosparse.layers import Layer, unwrapped
from orthosparse.substitution import preserve, seed_generators, with_tensors

_log = logging.getLogger(__name__)

# Squash their input, or divide by its size: twice the input does not give twice the output.
_REFUSED = (
    nn.Tanh, nn.Hardtanh, nn.Softsign, nn.LogSoftmax, nn.MultiheadAttention,
    nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell,
    nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip
_ROUNDING = 1e-6
_WANTED = (
    "synflow needs twice the output for twice the input"
    " (ReLU, leaky ReLU, SELU, GELU, SiLU, batch norm; logits, not probabilities)"
)


@dataclass(frozen=True)
class Flow:
    """R, the sum of the logits for an input of ones, as a function of the layers' absolute weights."""

    model: nn.Module
    keys: Mapping[str, str]  # a layer's name -> its parameter's name in the model
    tensors: Mapping[str, Tensor]  # every parameter and buffer of the positive model
    ones: Tensor
    head: Callable[[Tensor], Tensor]
    seed: int

    def total(self, times: float = 1.0) -> float:
        """Return R with the input and all biases multiplied by `times`."""
        scaled = {name: t * times if _is_bias(name) else t for name, t in self.tensors.items()}
        with torch.no_grad(), with_tensors(self.model, scaled):
            return self._sum(self.ones * times).item()

    def scores(self, masks: Masks) -> Scores:
        """Return theta * dR/dtheta at the masked weights, on the devices of the positive model."""
        weights = {name: self.tensors[self.keys[name]] for name in masks}
        leaves = {name: (weight * masks[name].to(weight.device)).requires_grad_() for name, weight in weights.items()}
        tensors = {**self.tensors, **{self.keys[name]: leaf for name, leaf in leaves.items()}}

        with with_tensors(self.model, tensors):
            grads = torch.autograd.grad(self._sum(self.ones), list(leaves.values()), materialize_grads=True)
        return {name: leaf.detach() * grad for (name, leaf), grad in zip(leaves.items(), grads, strict=True)}

    def check(self) -> None:
        """Raise unless all flow is positive and in proportion to the input; log the layers that it does not reach."""
        for name, module in self.model.named_modules():
            if isinstance(module, _REFUSED):
                raise ValueError(f"model: {_WANTED}; module {name!r} is a {type(module).__name__}")
        once, twice = self.total(), self.total(2.0)
        if not 0 < once <= twice < math.inf:
            raise ValueError(
                f"model: synflow needs a flow above 0 that float64 holds; got {once}, and {twice} for twice"
            )
        scores = self.scores({name: torch.ones_like(self.tensors[key]) for name, key in self.keys.items()})
        negative = [name for name, score in scores.items() if score.min() < -_ROUNDING * score.abs().max()]
        if negative or twice < 2 * once * (1 - _ROUNDING):
            where = f", and negative flow in {', '.join(negative)}" if negative else ""
            raise ValueError(f"model: {_WANTED}; this one gives {twice / once:.6g} times the output{where}")
        if dry := [name for name, score in scores.items() if not score.any()]:
            _log.warning(
                "orthosparse: no flow reaches these layers, so synflow removes all their weights: %s "
                "(a zero scale, a closed gate, an unused layer?)",
                ", ".join(dry),
            )

    def _sum(self, inputs: Tensor) -> Tensor:
        seed_generators(self.model, self.seed)
        outputs = outputs_on(self.model, inputs)
        if not isinstance(outputs, Tensor):
            raise ValueError(f"model: expected one tensor of logits; got {describe(outputs)}")
        return self.head(outputs).sum()


@contextmanager
def flow_of(
    model: nn.Module,
    layers: Mapping[str, Layer],
    shape: Sequence[int],
    head: Callable[[Tensor], Tensor],
    seed: int,
) -> Iterator[Flow]:
    """Yield the flow of a model, which is in eval mode inside the block and unchanged after it."""
    model = unwrapped(model)
    keys = keys_of(model, layers)
    with preserve(model):
        model.eval()
        positive = _positive(model)
        ones = torch.ones(1, *shape, dtype=torch.float64, device=next(iter(positive.values())).device)
        yield Flow(model, keys, positive, ones, head, seed)


def _positive(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter and buffer, floating-point ones as absolute values in float64, running means as 0."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    positive = {}
    for name, tensor in tensors.items():
        value = on_float64_device(tensor.detach()).clone()
        if value.is_floating_point():
            value = value.double().abs_()
        positive[name] = value.zero_() if name.rpartition(".")[2] == "running_mean" else value
    return positive


def _is_bias(name: str) -> bool:
    return "bias" in name.rpartition(".")[2]
