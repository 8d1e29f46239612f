"""Second derivatives for operations of torch that have none, through equivalent forms that do."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Run models in the block so that their derivatives can be differentiated; outputs do not change.

    Example:
        >>> x = torch.ones(1, requires_grad=True)
        >>> with twice_differentiable():
        ...     (slope,) = torch.autograd.grad(functional.hardsigmoid(x), x, create_graph=True)
        >>> slope.requires_grad
        True
    """
    with sdpa_kernel(SDPBackend.MATH), _Forms():  # the fused attention kernels have no second derivative
        yield


class _Forms(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        return _FORMS.get(func, func)(*args, **(kwargs or {}))


def _hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    result = functional.relu6(input + 3) / 6
    return input.copy_(result) if inplace else result


_FORMS: dict[Any, Callable[..., Tensor]] = {
    functional.hardsigmoid: _hardsigmoid,
    torch._C._nn.hardsigmoid: _hardsigmoid,
}
