"""What happens to every number by itself: bias and activation, its derivative, and the step of descent.

Written in plain torch; `fused` has the same in our own kernels.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten

# Activation in place, and its derivative by what it gave: (gradient, output, where to write).
_Bend = tuple[Callable[[Tensor], Any], Callable[[Tensor, Tensor, Tensor], Any]]
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
BENDS: dict[str, _Bend] = {
    "hardtanh": (
        lambda z: torch.nn.functional.hardtanh_(z),
        lambda g, y, out: _aten.hardtanh_backward.grad_input(g, y, -1.0, 1.0, grad_input=out),
    ),
    "leaky_relu": (
        lambda z: torch.nn.functional.leaky_relu_(z),
        lambda g, y, out: _aten.leaky_relu_backward.grad_input(g, y, 0.01, True, grad_input=out),
    ),
    "linear": (lambda z: z, lambda g, _, out: out.copy_(g)),
    "relu": (
        lambda z: z.relu_(),
        lambda g, y, out: _aten.threshold_backward.grad_input(g, y, 0.0, grad_input=out),
    ),
    "selu": (
        lambda z: torch.selu_(z),
        lambda g, y, out: _aten.elu_backward.grad_input(g, SELU_ALPHA, SELU_SCALE, 1.0, True, y, grad_input=out),
    ),
    "tanh": (
        lambda z: z.tanh_(),
        lambda g, y, out: _aten.tanh_backward.grad_input(g, y, grad_input=out),
    ),
}


def bend_(product: Tensor, bias: Tensor, activation: str) -> None:
    """Turn a product into the activation of ``product + bias``."""
    BENDS[activation][0](product.add_(bias))


def unbend(gradient: Tensor, output: Tensor, out: Tensor, activation: str) -> None:
    """Write the gradient before an activation to `out`: `gradient` times its derivative, which the output tells."""
    BENDS[activation][1](gradient, output, out)


def descend(
    value: Tensor, gradient: Tensor, momentum: Tensor, dead: Tensor, rate: Tensor, rule: tuple[float, float, bool]
) -> None:
    """Take a step of SGD with momentum, as `torch.optim.SGD` does; a dead member's value is not touched.

    Args:
        dead: which members have stopped, in a shape that broadcasts.
        rate: of each member; 0 where it is dead.
        rule: weight decay, momentum, and whether it is Nesterov's.
    """
    decay, inertia, nesterov = rule
    gradient.add_(value, alpha=decay)
    torch.add(gradient, momentum, alpha=inertia, out=momentum)
    if nesterov:
        gradient.add_(momentum, alpha=inertia)
    step = gradient if nesterov else momentum
    step.masked_fill_(dead, 0.0)  # 0 times what is not finite would not be 0
    value.addcmul_(step, rate, value=-1.0)
