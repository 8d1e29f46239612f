"""Expectations over Gaussian pre-activations of an elementwise activation and of its derivative, in float64."""

import copy
import functools
import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from orthosparse.registry import lookup

Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: Mapping[str, Activation] = {
    "linear": lambda x: x * 1.0,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "hardtanh": functional.hardtanh,
    "relu": functional.relu,
    "leaky_relu": functional.leaky_relu,
    "elu": functional.elu,
    "selu": functional.selu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
}

_REACH = 40.0  # beyond it the Gaussian density underflows in float64
_ORDERS = (80, 121)  # one even and one odd: no kink gives both the same value
_AGREE = 1e-13
_NODES = 16  # Gauss-Lobatto nodes in a panel
_PANEL_ERROR = 2e-15  # relative to the integral of the absolute value
_PARTS, _DIVISIONS = 8, 20  # a kink is enclosed to within 8^-20
_MOST_PANELS = 20_000


def elementwise(activation: str | Activation) -> Activation:
    """Return `activation` (a name, a module or a callable) as a function of float64 tensors.

    Raises:
        TypeError: `activation` has the wrong type.
        ValueError: the name is unknown, or the function is not elementwise.
    """
    if isinstance(activation, str):
        return lookup(ACTIVATIONS, activation, "activation")
    if isinstance(activation, type) or not callable(activation):
        raise TypeError(f"activation: expected a name, a module or a callable; got {activation!r}")
    function = copy.deepcopy(activation).double().eval() if isinstance(activation, nn.Module) else activation
    _check_elementwise(function)
    return function


def _check_elementwise(function: Activation) -> None:
    """Raise unless the value of an entry is independent of the other entries, their order and the shape."""
    points = torch.linspace(-3.0, 3.0, 24, dtype=torch.float64, device="cpu")
    try:
        with torch.random.fork_rng([]):  # a function that draws is rejected, and leaves the random state unchanged
            whole = function(points.clone())
            others = (
                function(points.flip(0)).flip(0),
                function(points.clone().view(4, 6)).flatten(),
                function(points[:7].clone()),
            )
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"activation: expected an elementwise function of a tensor; on a vector it raised {error}"
        ) from error
    for other in others:
        if not isinstance(other, Tensor) or not isinstance(whole, Tensor) or whole.shape != points.shape:
            raise ValueError(
                "activation: expected a tensor of the input's shape back (GLU-like functions have no gain)"
            )
        if not torch.allclose(other, whole[: len(other)], rtol=1e-12, atol=1e-12):
            raise ValueError(
                "activation: expected an elementwise function; an entry's value depends on the others, or is random "
                "(softmax, normalization, dropout)"
            )


def moments(function: Activation, q: float) -> Tensor:
    """Return E[f^2], E[f'^2], E[f'^4] and E[f^2 (z^2 - 1)] for f = function(sqrt(q) z), z standard normal.

    Gauss-Hermite quadrature if two orders agree (smooth functions), else adaptive Gauss-Lobatto quadrature, whose
    panels are divided until they agree with their parts, which encloses kinks.
    """

    def integrand(z: Tensor) -> Tensor:
        value, slope = _with_derivative(function, math.sqrt(q) * z)
        square = value.square()
        return torch.stack([square, slope.square(), slope.pow(4), square * (z.square() - 1)])

    coarse, fine = (_hermite(integrand, order) for order in _ORDERS)
    if bool(((coarse - fine).abs() <= _AGREE * fine.abs().clamp_min(1e-300)).all()):
        return fine
    return _panels(integrand)


def _with_derivative(function: Activation, x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False), torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        value = function(leaf.clone())
        if not value.requires_grad:
            return value, torch.zeros_like(x)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), slope


def _hermite(integrand: Callable[[Tensor], Tensor], order: int) -> Tensor:
    nodes, weights = _hermite_rule(order)
    return integrand(nodes) @ weights / math.sqrt(2 * math.pi)


def _panels(integrand: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the integral over [-40, 40], by adaptive Gauss-Lobatto quadrature.

    A panel is done when it agrees with the sum of its parts. The rule has nodes at the panel's ends, so that a kink
    always lies between two nodes and is detected.
    """
    edges = torch.arange(-_REACH, _REACH + 1, dtype=torch.float64, device="cpu")
    left, right = edges[:-1], edges[1:]
    rough = _lobatto(integrand, left, right)
    scale = rough.abs().sum(1, keepdim=True)
    done = torch.zeros_like(rough[:, 0])
    share = torch.arange(_PARTS + 1, dtype=torch.float64, device="cpu") / _PARTS
    for _ in range(_DIVISIONS):
        cuts = left.unsqueeze(1) + (right - left).unsqueeze(1) * share
        parts = _lobatto(integrand, cuts[:, :-1].flatten(), cuts[:, 1:].flatten()).view(len(rough), -1, _PARTS)
        bad = ((parts.sum(2) - rough).abs() > _PANEL_ERROR * scale).any(0)
        done += parts[:, ~bad].sum((1, 2))
        left, right, rough = cuts[bad, :-1].flatten(), cuts[bad, 1:].flatten(), parts[:, bad].flatten(1)
        if len(left) > _MOST_PANELS:
            raise ValueError("activation: too rough to integrate (is an entry's value random?)")
        if len(left) == 0:
            break
    return done + rough.sum(1)


def _lobatto(integrand: Callable[[Tensor], Tensor], left: Tensor, right: Tensor) -> Tensor:
    nodes, weights = _lobatto_rule(_NODES)
    half = (right - left).unsqueeze(1) / 2
    z = (left + right).unsqueeze(1) / 2 + half * nodes
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi) * half * weights
    return (integrand(z.flatten()).view(-1, *z.shape) * density).sum(2)


@functools.cache
def _hermite_rule(order: int) -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    return torch.from_numpy(nodes), torch.from_numpy(weights)


@functools.cache
def _lobatto_rule(order: int) -> tuple[Tensor, Tensor]:
    """The ends and the roots of P', P the Legendre polynomial of degree order - 1; weights 2 / (n (n - 1) P^2)."""
    polynomial = np.polynomial.Legendre.basis(order - 1)
    slope = polynomial.deriv()
    roots = slope.roots().real
    roots -= slope(roots) / slope.deriv()(roots)  # one step of Newton: the roots come from an eigenvalue problem
    nodes = np.concatenate([[-1.0], roots, [1.0]])
    return torch.from_numpy(nodes), torch.from_numpy(2 / (order * (order - 1) * polynomial(nodes) ** 2))
