"""Checks of arguments; each error names the argument, what was expected and what was passed."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from operator import index
from os import PathLike
from typing import Any

import torch
from torch import nn

from orthosparse.structures import BLOCK, ENTRIES, SMALLEST_BLOCK, TWO_OF_FOUR

FILLABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MATRIX, KERNEL = (2,), (3, 4, 5)  # numbers of dimensions


def check_density(density: Any, name: str = "density") -> float:
    """Return `density` as a float.

    Raises:
        TypeError: it is not a real number (a bool is not one).
        ValueError: it is NaN or outside [0, 1].

    Example:
        >>> check_density(1)
        1.0
        >>> check_density(1.5)
        Traceback (most recent call last):
        ...
        ValueError: density: expected a number in [0, 1]; got 1.5
    """
    _check_real(name, density, "a number in [0, 1]")
    if not 0 <= density <= 1:  # false for NaN too
        raise ValueError(f"{name}: expected a number in [0, 1]; got {density!r}")
    return float(density)


def check_number(name: str, number: float, *, least: float = -math.inf) -> float:
    """Return a finite real number of at least `least`.

    Raises:
        TypeError: it is not a real number (a bool is not one).
        ValueError: it is NaN, infinite, or below `least`.

    Example:
        >>> check_number("step_size", math.nan)
        Traceback (most recent call last):
        ...
        ValueError: step_size: expected a finite number; got nan
    """
    expected = "a finite number" if least == -math.inf else f"a finite number of at least {least:g}"
    _check_real(name, number, expected)
    if not (math.isfinite(number) and number >= least):
        raise ValueError(f"{name}: expected {expected}; got {number!r}")
    return float(number)


def check_positive(name: str, number: float) -> None:
    """Raise, as `check_number` does, unless `number` is a finite real number above 0."""
    _check_real(name, number, "a positive number")
    if not 0 < number < math.inf:
        raise ValueError(f"{name}: expected a positive number; got {number!r}")


def check_gain(gain: object, limit: float = math.inf) -> float:
    """Return `gain` as a float; raise unless it is finite and its absolute value is at most `limit`."""
    _check_real("gain", gain, "a finite number")
    assert isinstance(gain, Real)
    if not math.isfinite(gain) or abs(float(gain)) > limit:
        raise ValueError(f"gain: expected a finite number{f' of at most {limit:g}' * (limit < math.inf)}; got {gain!r}")
    return float(gain)


def check_finite(tensors: Mapping[str, torch.Tensor], expected: str) -> None:
    """Raise ValueError, with what was expected and the name of the layer, if one of the tensors is not finite."""
    for name, tensor in tensors.items():
        # Not isfinite of every entry: that takes twenty times longer, and two copies of the tensor.
        if tensor.numel() and not all(bool(extreme.isfinite()) for extreme in tensor.detach().aminmax()):
            raise ValueError(f"{expected}; layer {name!r} has NaN or infinite ones")


def check_int(value: Any, name: str) -> int:
    """Return an integer argument that fits int64 as an int; raise TypeError for bools and floats."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name}: expected an integer; got {describe(value)}")
    if not -(2**63) <= number < 2**63:
        bound = "below 2**63" if number > 0 else "of at least -2**63"
        raise ValueError(f"{name}: expected an integer {bound}; got {number}")
    return number


def check_flag(value: bool, name: str) -> bool:
    """Return an argument that is True or False; raise TypeError for anything else."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected True or False; got {describe(value)}")
    return value


def check_progress(progress: object) -> None:
    """Raise TypeError unless `progress` is True, False or a function ``(what, done, total)``."""
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress: expected True, False or a function (what, done, total); got {describe(progress)}")


def check_at_least(value: int, least: int, name: str) -> int:
    """Return an integer argument that is no smaller than `least`."""
    checked = check_int(value, name)
    if checked < least:
        raise ValueError(f"{name}: expected an integer of at least {least}; got {checked}")
    return checked


def check_count(count: int, shape: Sequence[int], *, floor: int, ceiling: int) -> int:
    """Return the count of active entries in a matrix as an int within [floor, ceiling]."""
    value = check_int(count, "count")
    size = f"{shape[0]} x {shape[1]}"
    if value < floor:
        raise ValueError(
            f"count: an orthogonal {size} matrix has at least {floor} active entries; got {value} "
            "(partial() fills fewer)"
        )
    if value > ceiling:
        raise ValueError(f"count: expected at most {ceiling} active entries in a {size} matrix; got {value}")
    return value


def check_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return a floating-point type that a matrix can be cast to."""
    if not isinstance(dtype, torch.dtype) or dtype not in FILLABLE:
        raise TypeError(f"dtype: expected one of {', '.join(map(str, FILLABLE))}; got {dtype!r}")
    return dtype


def check_readable(weight: torch.Tensor) -> None:
    """Raise unless `weight` is a dense real tensor with storage, at least two dimensions and at least one entry.

    Raises:
        TypeError: it is not a tensor, or is complex, sparse, nested or quantized.
        ValueError: it has fewer than two dimensions, no entries, or no storage.
    """
    if not isinstance(weight, torch.Tensor) or not is_dense(weight) or weight.is_complex():
        raise TypeError(f"weight: expected a dense real tensor; got {describe(weight)}")
    if weight.is_meta or nn.parameter.is_lazy(weight):
        raise ValueError(f"weight: expected a tensor with storage; got {describe(weight)}")
    if weight.dim() < 2 or weight.numel() == 0:
        raise ValueError(f"weight: expected two or more sides, none of them 0; got {describe(weight)}")


def check_fillable(weight: torch.Tensor, sides: Collection[int], gain: float) -> float:
    """Return `gain` as a float that the dtype of `weight` can hold.

    Raises unless `weight` is readable, floating point, has one of the numbers of dimensions `sides`, and no two of its
    entries share memory.
    """
    check_readable(weight)
    if weight.dtype not in FILLABLE:
        expected = ", ".join(str(dtype).removeprefix("torch.") for dtype in FILLABLE)
        raise TypeError(f"weight: expected one of the dtypes {expected}; got {describe(weight)}")
    if weight.dim() not in sides:
        raise ValueError(f"weight: expected {' or '.join(map(str, sides))} sides; got {describe(weight)}")
    if any(stride == 0 and size > 1 for stride, size in zip(weight.stride(), weight.shape, strict=True)):
        raise ValueError(
            f"weight: expected entries that share no memory, not an expanded tensor; got {describe(weight)}"
        )
    return check_gain(gain, torch.finfo(weight.dtype).max)


def check_align(align: torch.Tensor | None, weight: torch.Tensor) -> None:
    """Raise unless `align` is None, or a mask or scores of the weight's shape."""
    if align is None:
        return
    if not isinstance(align, torch.Tensor) or align.is_complex():
        raise TypeError(f"align: expected a bool mask, or scores; got {describe(align)}")
    if align.shape != weight.shape:
        raise ValueError(f"align: expected the weight's shape {tuple(weight.shape)}; got {tuple(align.shape)}")


def check_parameter(name: str, parameter: nn.Parameter) -> None:
    """Raise unless a layer's parameter holds real numbers that a scheme can write.

    Raises:
        TypeError: its dtype is not float16, bfloat16, float32 or float64, or it is not dense.
        ValueError: it has no storage (meta device), no entries, or cannot be trained (inference mode).
    """
    check_autograd()
    if not parameter.is_floating_point() or parameter.element_size() < 2 or parameter.layout != torch.strided:
        expected = "dense weights in float16, bfloat16, float32 or float64"
        raise TypeError(f"model: expected {expected}; {name!r} has {parameter.dtype}, {parameter.layout}")
    if parameter.is_meta:
        raise ValueError(f"model: expected weights in memory; {name!r} is on the meta device")
    if not parameter.numel():
        raise ValueError(f"model: expected weights; {name!r} has none, its shape is {tuple(parameter.shape)}")
    if parameter.is_inference():
        raise ValueError(f"model: expected weights that can be trained; {name!r} was made in torch.inference_mode")


def check_autograd() -> None:
    """Raise ValueError in inference mode, where new parameters and masks cannot be used for training."""
    if torch.is_inference_mode_enabled():
        raise ValueError("model: expected a call outside of torch.inference_mode, where new tensors cannot be trained")


def check_model(model: nn.Module) -> nn.Module:
    """Return `model`; raise TypeError unless it is a module whose tensors can be replaced (not a scripted one).

    Example:
        >>> check_model(nn.Linear)
        Traceback (most recent call last):
        ...
        TypeError: model: expected a torch.nn.Module; got the class Linear, not an instance of it
    """
    if isinstance(model, type):
        raise TypeError(f"model: expected a torch.nn.Module; got the class {model.__name__}, not an instance of it")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module; got {_described(model)}")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise TypeError(
            "model: expected a module in Python; got one that torch.jit scripted or traced: "
            "make the Python module sparse, and script or trace it afterwards"
        )
    return model


def _described(model: Any) -> str:
    """Describe an argument that is not a model, for a message, with a hint what to do."""
    hint = ""
    if isinstance(model, list | tuple) and model and all(isinstance(each, nn.Module) for each in model):
        hint = ": torch.nn.Sequential or torch.nn.ModuleList makes a module of several"
    if isinstance(model, str | PathLike):
        hint = ": build the model first, and load the file into it (load_sparse, or load_state_dict)"
    if isinstance(model, Mapping):
        hint = ": build the model first, and load the state dict into it (load_sparse, or load_state_dict)"
    return f"{model!r:.200} ({type(model).__name__}){hint}"


def check_arguments(given: Any, argument: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the ``(args, kwargs)`` of a call, from a tensor, a tuple of arguments or a dict of keyword arguments.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(given, torch.Tensor):
        return (given,), {}
    if isinstance(given, Mapping):
        return (), dict(given)
    if isinstance(given, tuple | list):
        return tuple(given), {}
    kind = type(given).__name__
    raise TypeError(f"{argument}: expected a tensor, a tuple of arguments or a dict of them; got {kind}")


@contextmanager
def named_on_error(argument: str, problem: str = "the model cannot take it") -> Iterator[None]:
    """Re-raise errors of the block as ValueErrors that name `argument`, except for running out of memory."""
    try:
        yield
    except torch.OutOfMemoryError:  # a RuntimeError
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
        raise ValueError(f"{argument}: {problem} ({type(error).__name__}: {error})") from error


def check_mapping(name: str, mapping: Any, kind: type = torch.Tensor) -> None:
    """Raise TypeError unless an argument is a mapping from layer names to `kind`.

    Example:
        >>> check_mapping("masks", nn.Linear(1, 1))
        Traceback (most recent call last):
        ...
        TypeError: masks: expected a mapping from layer names to Tensor; got Linear (masks_of returns a model's)
    """
    values = "" if kind is object else f" to {kind.__name__}"
    expected = f"a mapping from layer names{values}"
    if not isinstance(mapping, Mapping):
        hint = " (masks_of returns a model's)" if isinstance(mapping, nn.Module) else ""
        raise TypeError(f"{name}: expected {expected}; got {type(mapping).__name__}{hint}")
    for key, value in mapping.items():
        if not isinstance(key, str):
            raise TypeError(f"{name}: expected {expected}; got the name {describe(key)}")
        if not isinstance(value, kind):
            raise TypeError(f"{name}: expected {expected}; got {type(value).__name__} for {key!r}")


def check_optimizer(optimizer: object) -> None:
    """Raise TypeError unless `optimizer` is None or has ``param_groups`` and ``state``.

    The type is not checked: wrappers of frameworks need not derive from ``torch.optim.Optimizer``.
    """
    if optimizer is None:
        return
    if isinstance(optimizer, type) or not (hasattr(optimizer, "param_groups") and hasattr(optimizer, "state")):
        raise TypeError(f"optimizer: expected a torch.optim.Optimizer; got {optimizer!r}")


def check_structure(structure: str) -> str:
    """Return `structure`.

    Raises:
        ValueError: it is not a structure.

    Example:
        >>> check_structure("block:48")
        Traceback (most recent call last):
        ...
        ValueError: structure: expected 'entries', '2:4' or 'block:N', N a power of two of at least 16; got 'block:48'
    """
    if not isinstance(structure, str) or (structure not in (ENTRIES, TWO_OF_FOUR) and not _is_block(structure)):
        expected = f"{ENTRIES!r}, {TWO_OF_FOUR!r} or '{BLOCK}N', N a power of two of at least {SMALLEST_BLOCK}"
        raise ValueError(f"structure: expected {expected}; got {structure!r}")
    return structure


def _is_block(structure: str) -> bool:
    prefix, digits = structure[: len(BLOCK)], structure[len(BLOCK) :]
    if prefix != BLOCK or not (digits.isascii() and digits.isdigit()) or digits.startswith("0"):
        return False
    return int(digits) >= SMALLEST_BLOCK and int(digits).bit_count() == 1


def check_per_side(value: int | Sequence[int], dims: int, name: str, *, least: int) -> tuple[int, ...]:
    """Return one integer for each dimension of a kernel.

    Raises:
        TypeError, ValueError: it is not an integer of at least `least`, nor one for each dimension.
    """
    values = tuple(value) if isinstance(value, Sequence) else (value,) * dims
    if len(values) != dims:
        raise ValueError(
            f"{name}: expected an integer, or {dims} of them, one for each side of the kernel; got {value!r}"
        )
    return tuple(check_at_least(each, least, name) for each in values)


def check_groups(weight: torch.Tensor, groups: int) -> int:
    """Return `groups`; raise unless it divides the first dimension of `weight`."""
    groups = check_int(groups, "groups")
    if groups < 1 or weight.shape[0] % groups:
        raise ValueError(f"groups: expected a divisor of {weight.shape[0]}, the weight's first side; got {groups}")
    return groups


def describe(weight: object) -> str:
    """Describe an argument that should have been another tensor, for a message."""
    if not isinstance(weight, torch.Tensor):
        return f"{weight!r} ({type(weight).__name__})"
    if nn.parameter.is_lazy(weight):
        return "a parameter that is not initialized yet"
    shape = "nested" if weight.is_nested else f"shape {tuple(weight.shape)}"
    return f"{shape}, {weight.dtype}, {weight.layout}, {weight.device}"


def is_dense(weight: torch.Tensor) -> bool:
    """Whether a tensor is strided, and neither nested nor quantized; lazy parameters count as dense."""
    if nn.parameter.is_lazy(weight):
        return True
    return weight.layout == torch.strided and not (weight.is_nested or weight.is_quantized)


def _check_real(name: str, number: object, expected: str) -> None:
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{name}: expected {expected}; got {number!r} ({type(number).__name__})")
