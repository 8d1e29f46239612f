"""Norms of the gradients of a model, layer by layer, before and after one step of gradient descent."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from orthosparse.checks import check_model, check_number, named_on_error
from orthosparse.hardware import to_float64
from orthosparse.isometry._functional import layers_of, untraced
from orthosparse.layers import Layer, unwrapped
from orthosparse.masking import on_masked_forms
from orthosparse.randomness import draw_seed
from orthosparse.substitution import copied, frozen_state, substituted
from orthosparse.tables import html_table

Loss = Callable[[Any, Any], Tensor]
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class GradientFlow:
    """Norms of the gradients on one batch, before and after one step of gradient descent on it.

    Attributes:
        norms: norm of the gradient of the weights of each layer that is not frozen.
        norm: norm of the gradient of all trainable parameters.
        norms_after: like `norms`, at the parameters minus `step_size` times the gradient.
        norm_after: like `norm`, at the same point.
        curvature: g^T H g for the gradient g and the Hessian H; GraSP scores each weight theta by its part theta * H g.
            For a small step, norm_after^2 = norm^2 - 2 * step_size * curvature + ...
        loss: loss before the step.
        step_size: learning rate of the step.
    """

    norms: dict[str, float]
    norm: float
    norms_after: dict[str, float]
    norm_after: float
    curvature: float
    loss: float
    step_size: float

    def _repr_html_(self) -> str:
        rows = [(name, f"{norm:.4g}", f"{self.norms_after[name]:.4g}") for name, norm in self.norms.items()]
        total = f"all parameters: {self.norm:.4g}, after a step of {self.step_size:g} {self.norm_after:.4g}"
        foot = f"{total}; loss {self.loss:.6g}, curvature {self.curvature:.4g}"
        return html_table(["layer", "gradient norm", "after a step"], rows, [foot])


@on_masked_forms
def gradient_flow(
    model: nn.Module,
    loss: Loss | None,
    batch: tuple[Any, Any],
    *,
    layers: Mapping[str, Layer] | None = None,
    step_size: float = 0.01,
    generator: torch.Generator | None = None,
) -> GradientFlow:
    """Return the norms of the gradients of each layer on one batch, before and after one step of gradient descent.

    The model is used as it is (mode, masks), and not changed: parameters, `.grad`, buffers and random states. Dropout
    draws the same mask before and after.

    Args:
        loss: ``(output, y) -> scalar``; None means cross-entropy.
        batch: (x, y), where x is a tensor or a mapping of keyword arguments.
        layers: the layers whose norms are listed; by default, all that `find_layers` finds.
        step_size: learning rate of the step.
        generator: draws the random numbers of the model itself, for example of dropout.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(model.weight, 1.0)
        >>> flow = gradient_flow(model, lambda out, y: ((out - y) ** 2).sum(), (torch.ones(1, 1), torch.zeros(1, 1)))
        >>> flow.norm, round(flow.norm_after, 6), flow.curvature
        (2.0, 1.96, 8.0)
    """
    step_size = check_number("step_size", step_size)
    model = unwrapped(check_model(model))
    listed = layers_of(model, layers)
    objective = _Objective(model, functional.cross_entropy if loss is None else loss, batch, draw_seed(generator))
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not trainable:
        raise ValueError("model: expected at least one parameter that requires a gradient; all are frozen")
    value, before, curvature = objective(trainable)
    _, after, _ = objective({name: parameter - step_size * before[name] for name, parameter in trainable.items()})
    names = {id(parameter): name for name, parameter in trainable.items()}
    keys = {name: names[id(layer.parameter())] for name, layer in listed.items() if id(layer.parameter()) in names}
    return GradientFlow(
        norms={name: _norm([before[key]]) for name, key in keys.items()},
        norm=_norm(before.values()),
        norms_after={name: _norm([after[key]]) for name, key in keys.items()},
        norm_after=_norm(after.values()),
        curvature=curvature,
        loss=value,
        step_size=step_size,
    )


class _Objective:
    """The loss on one batch as a function of the trainable parameters; all calls use the same buffers and dropout."""

    def __init__(self, model: nn.Module, loss: Loss, batch: tuple[Any, Any], seed: int) -> None:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise TypeError(f"batch: expected a pair (x, y); got {type(batch).__name__}")
        if not callable(loss):
            raise TypeError(f"loss: expected a function of (output, y), or None; got {type(loss).__name__}")
        self.model, self.loss, self.seed = model, loss, seed
        self.x, self.y = batch
        if isinstance(self.x, Tensor) and (self.x.dim() == 0 or len(self.x) == 0):
            raise ValueError(f"batch: expected at least one sample; got shape {tuple(self.x.shape)}")

    def __call__(self, parameters: Mapping[str, Tensor]) -> tuple[float, Tensors, float]:
        """Return the loss, its gradients g, and g^T H g."""
        with untraced(self.model, next(iter(parameters.values())).device, self.seed):
            leaves = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
            # Substituted until the backward pass is done, for layers that it recomputes.
            with substituted(self.model, frozen_state(self.model) | leaves):
                value, fixed, hessian_products = self._differentiated(list(leaves.values()))
        products = ((to_float64(a) * to_float64(b)).sum() for a, b in zip(hessian_products, fixed, strict=True))
        curvature = sum(map(float, products))
        return float(value.detach()), dict(zip(leaves, fixed, strict=True)), curvature

    def _differentiated(self, leaves: list[Tensor]) -> tuple[Tensor, list[Tensor], Sequence[Tensor]]:
        """Return the loss, g and H g of the model with its current tensors."""
        with named_on_error("batch"):
            x = copied(dict(self.x) if isinstance(self.x, Mapping) else self.x)
            value = self.loss(self.model(**x) if isinstance(x, dict) else self.model(x), self.y)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ValueError("loss: expected a function of (output, y) that returns one number")
        gradients = torch.autograd.grad(value, leaves, create_graph=True, materialize_grads=True)
        fixed = [gradient.detach() for gradient in gradients]
        along = torch.stack([(a * b).sum() for a, b in zip(gradients, fixed, strict=True)]).sum()
        if not along.requires_grad:  # a loss that is linear in the parameters
            return value, fixed, [torch.zeros_like(part) for part in fixed]
        return value, fixed, torch.autograd.grad(along, leaves, materialize_grads=True)


def _norm(tensors: Iterable[Tensor]) -> float:
    return float(torch.stack([torch.linalg.vector_norm(to_float64(part)) for part in tensors]).norm())
