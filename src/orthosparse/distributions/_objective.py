"""The loss of a model as a function of its layers' weights, and its derivatives; the model is not changed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from orthosparse.aliases import Scores
from orthosparse.checks import named_on_error
from orthosparse.distributions._inputs import Batch, describe, keys_of, outputs_on
from orthosparse.hardware import precise
from orthosparse.layers import Layer, unwrapped
from orthosparse.randomness import derive_seed, draw_seed
from orthosparse.substitution import frozen_state, preserve, seed_generators, with_tensors

Loss: TypeAlias = Callable[..., Tensor]
Derivative: TypeAlias = Callable[[Tensor, list[Tensor]], Sequence[Tensor]]


@dataclass(frozen=True)
class Objective:
    """The summed loss of batches, with the model in train mode.

    Each pass over a batch uses the same buffers and the same random numbers, so that equal weights have equal losses,
    also with dropout and batch norm.
    """

    model: nn.Module
    keys: Mapping[str, str]  # a layer's name -> its parameter's name in the model
    loss: Loss
    seed: int
    temperature: float  # divides the outputs before the loss

    def gradient(self, weights: Scores, batches: Iterable[Batch]) -> Scores:
        """Return dL / d weights."""
        return self._sum(weights, batches, lambda loss, leaves: torch.autograd.grad(loss, leaves, allow_unused=True))

    def hessian_times(self, weights: Scores, batches: Iterable[Batch], vectors: Scores | None) -> Scores:
        """Return H v, H the Hessian of L; without `vectors`, v is each batch's own gradient."""

        def product(loss: Tensor, leaves: list[Tensor]) -> Sequence[Tensor]:
            grads = torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
            chosen = [grad.detach() for grad in grads] if vectors is None else vectors.values()
            inner = sum((grad * v.to(grad)).sum() for grad, v in zip(grads, chosen, strict=True))
            assert isinstance(inner, Tensor)
            if not inner.requires_grad:  # the loss is linear in every weight
                return [torch.zeros_like(grad) for grad in grads]
            with named_on_error("model", "expected one that can be differentiated twice"):
                return torch.autograd.grad(inner, leaves, allow_unused=True)

        return self._sum(weights, batches, product)

    def _sum(self, weights: Scores, batches: Iterable[Batch], derivative: Derivative) -> Scores:
        leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        totals = {name: torch.zeros_like(precise(weight)) for name, weight in weights.items()}
        for number, batch in enumerate(batches):
            parts = self._differentiate(leaves, number, batch, derivative)
            for total, part in zip(totals.values(), parts, strict=True):
                if part is not None:  # None: the batch does not reach this layer
                    total += part
        return totals

    def _differentiate(self, leaves: Scores, number: int, batch: Batch, derivative: Derivative) -> Sequence[Tensor]:
        weights = {self.keys[name]: leaf for name, leaf in leaves.items()}
        with with_tensors(self.model, frozen_state(self.model) | weights):
            seed_generators(self.model, derive_seed(self.seed, "batch", number))
            loss = self._value(outputs_on(self.model, batch[0]), batch[1])
            if not torch.isfinite(loss):
                raise ValueError(f"loss: expected a finite number; got {loss.item()} on batch {number}")
            return derivative(loss, list(leaves.values()))

    def _value(self, outputs: Any, targets: Any) -> Tensor:
        try:
            value = self.loss(self._divided(outputs), targets)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            got = f"outputs of {describe(outputs)} and targets of {describe(targets)}"
            raise ValueError(f"loss: cannot be computed from {got}: {error}") from error
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ValueError(f"loss: expected one number; got {describe(value)}")
        if not value.requires_grad:
            raise ValueError("loss: expected a function of the layers' weights; got one that does not depend on them")
        return value

    def _divided(self, outputs: Any) -> Any:
        if self.temperature == 1:
            return outputs
        if not isinstance(outputs, Tensor):
            raise TypeError("temperature divides one tensor; pass 1, and divide the logits in your loss")
        return outputs / self.temperature


@contextmanager
def objective_of(
    model: nn.Module,
    layers: Mapping[str, Layer],
    loss: Loss | None,
    generator: torch.Generator | None,
    *,
    temperature: float = 1.0,
) -> Iterator[Objective]:
    """Yield the objective of a model, which is in train mode inside the block and unchanged after it."""
    model = unwrapped(model)
    keys = keys_of(model, layers)
    with preserve(model):
        model.train()
        yield Objective(model, keys, cross_entropy if loss is None else loss, draw_seed(generator), temperature)
