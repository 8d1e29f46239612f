"""Surrogates of torch functions that only track paths through a network: sums of products that never cancel.

In the surrogate network a signal is 0 where no path arrives and positive elsewhere, and a derivative is positive
exactly where a change is passed on. So subtraction adds, an activation or a normalization maps every unit to itself
(plus a constant if its value at zero is not zero: the gate of a sigmoid is open even if nothing reaches it), maxima are
sums, and attention mixes what its mask allows. A rule is ``(flag, *args, **kwargs) -> result`` with the arguments of
the function that it replaces; ``flag`` resets a signal to 0 or 1, so that neither depth nor width can overflow.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.isometry import _sequences

Flag = Callable[[Tensor], Tensor]
Rule = Callable[..., Any]

_FACTORS = ("alpha", "beta")  # of terms, among the arguments of products


def is_signal(value: Any) -> bool:
    """Whether `value` is a tensor that depends on the input or on a weight."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.requires_grad


def _itself(flag: Flag, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    del flag, args, kwargs
    return x


def _same(flag: Flag, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Map every unit to itself, in a new tensor, which may be changed in place."""
    del flag, args, kwargs
    return x.clone()


def _lifted(flag: Flag, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    del flag, args, kwargs
    return x + 1


def _normalized(flag: Flag, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Map every unit to itself. A shift only adds constants, which matter if signals are multiplied."""
    del flag
    return x + 1 if _has_shift(args, kwargs) else x.clone()


def _has_shift(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return isinstance(kwargs.get("bias"), Tensor) or sum(isinstance(arg, Tensor) for arg in args) >= 2


def _softmax(flag: Flag, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    del flag, args, kwargs
    return torch.where(x < 0, 0.0, x + 1)


def _positive(value: Any) -> Any:
    """Return the absolute value of a constant; signals are not negative anyway."""
    signless = is_signal(value) or (isinstance(value, Tensor) and value.dtype == torch.bool)
    return value if signless else abs(value)


def _sum(flag: Flag, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    if is_signal(a) and is_signal(b):
        return flag(a + abs(alpha) * b)
    signal, constant = (a, b) if is_signal(a) else (b, a)
    if isinstance(constant, Tensor) and constant.numel() and float(constant.min()) <= _sequences.CLOSED:
        return signal + constant
    return signal + _positive(constant)


def _difference_from(flag: Flag, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return _sum(flag, b, a, alpha=alpha)


def _product(flag: Flag, a: Any, b: Any) -> Any:
    del flag
    return _positive(a) * _positive(b)


def _quotient(flag: Flag, a: Any, b: Any, **kwargs: Any) -> Any:
    del flag, kwargs
    if is_signal(b):
        return _positive(a) * (1 + b)
    return a / (abs(b).masked_fill(b == 0, 1) if isinstance(b, Tensor) else abs(b))


def _with_term(term: Rule) -> Rule:
    """Return a rule for a sum of which one term is a product or a quotient."""

    def rule(flag: Flag, x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Any:
        return _sum(flag, x, term(flag, tensor1, tensor2), alpha=value)

    return rule


def _flagged(function: Rule) -> Rule:
    """Return a rule that applies the function to absolute constants, for linear maps and the like."""

    def rule(flag: Flag, *args: Any, **kwargs: Any) -> Tensor:
        signless = {k: _positive(v) if isinstance(v, Tensor) or k in _FACTORS else v for k, v in kwargs.items()}
        return flag(function(*(_positive(arg) if isinstance(arg, Tensor) else arg for arg in args), **signless))

    return rule


def _pooled(sides: int) -> Rule:
    """Return a rule that replaces max pooling by a sum over the same windows."""
    convolve, pool = getattr(functional, f"conv{sides}d"), getattr(functional, f"max_pool{sides}d")

    def rule(
        flag: Flag,
        x: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        window = [kernel_size] * sides if isinstance(kernel_size, int) else list(kernel_size)
        stride = stride or kernel_size
        options = {"stride": stride, "padding": padding, "dilation": dilation}
        shape = pool(x.detach(), kernel_size, ceil_mode=ceil_mode, **options).shape
        channels = x.shape[-sides - 1]
        room = [0, max(window) if ceil_mode else 0] * sides  # ceil_mode: the last window may end outside
        summed = convolve(functional.pad(x, room), x.new_ones(channels, 1, *window), groups=channels, **options)
        summed = flag(summed[(..., *(slice(side) for side in shape[-sides:]))])
        return (summed, None) if return_indices else summed

    return rule


def _adaptive(function: Rule) -> Rule:
    def rule(flag: Flag, x: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        pooled = flag(function(x, output_size))
        return (pooled, None) if return_indices else pooled

    return rule


def _extreme(flag: Flag, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    if isinstance(dim, Tensor):  # max(a, b)
        return _sum(flag, x, dim)
    if dim is None:
        return flag(x.sum())
    return flag(x.sum(dim, keepdim=keepdim)), x.argmax(dim, keepdim=keepdim)


def _reduced(flag: Flag, x: Tensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Tensor:
    del kwargs
    return flag(x.sum(dim, keepdim=keepdim))


def _norm(flag: Flag, x: Tensor, order: Any = None, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Tensor:
    del order
    return _reduced(flag, x, dim, keepdim, **kwargs)


def _power(flag: Flag, x: Any, exponent: Any) -> Any:
    del flag
    return x.clone() if is_signal(x) else exponent + 1


def _interpolated(
    flag: Flag, x: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", **kwargs: Any
) -> Tensor:
    mode = "bilinear" if mode == "bicubic" else mode  # the bicubic kernel has negative lobes
    return flag(functional.interpolate(x, size, scale_factor, mode, **kwargs))


# In eval mode these return their input; what changes the result in place changes it too.
_ITSELF = "detach dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout"
_SAME = """relu relu6 tanh gelu silu leaky_relu elu selu celu hardtanh hardswish mish softsign tanhshrink softshrink
hardshrink rrelu prelu threshold log_softmax neg abs clamp clip clamp_min clamp_max sqrt square sin sinh asinh atan
erf expm1 log1p round floor ceil trunc sign local_response_norm normalize"""
_LIFTED = "sigmoid hardsigmoid softplus logsigmoid exp exp2 cos cosh log log2 rsqrt reciprocal erfc"
_LINEAR = "linear bilinear matmul mm bmm mv dot inner outer tensordot addmm baddbmm addbmm addmv einsum"
_LINEAR += " conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"

RULES: dict[str, Rule] = {
    **dict.fromkeys(_ITSELF.split(), _itself),
    **dict.fromkeys(_SAME.split(), _same),
    **dict.fromkeys(_LIFTED.split(), _lifted),
    **dict.fromkeys(["rdiv", "rtruediv", "rpow"], _lifted),  # scalar / x, scalar ** x
    **dict.fromkeys(["batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"], _normalized),
    **dict.fromkeys(["softmax", "softmin", "gumbel_softmax"], _softmax),
    **dict.fromkeys(["add", "iadd", "radd", "sub", "isub", "subtract", "maximum", "minimum"], _sum),
    **dict.fromkeys(["rsub"], _difference_from),
    **dict.fromkeys(["mul", "imul", "rmul", "multiply"], _product),
    **dict.fromkeys(["div", "idiv", "truediv", "itruediv", "divide", "true_divide"], _quotient),
    "addcmul": _with_term(_product),
    "addcdiv": _with_term(_quotient),
    **{name: _flagged(getattr(torch, name, None) or getattr(functional, name)) for name in _LINEAR.split()},
    **{f"max_pool{n}d": _pooled(n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive(getattr(functional, f"adaptive_avg_pool{n}d")) for n in (1, 2, 3)},
    **dict.fromkeys(["max", "min"], _extreme),
    **dict.fromkeys(["amax", "amin", "logsumexp", "var", "std", "mean"], _reduced),
    **dict.fromkeys(["norm", "vector_norm"], _norm),
    **dict.fromkeys(["pow", "float_power"], _power),
    "interpolate": _interpolated,
    **_sequences.RULES,
}
