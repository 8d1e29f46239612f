"""Which model is meant: a built-in one, one of timm's, or what a function in a file returns."""

import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, nn

from orthosparse.lab.models import build
from orthosparse.lab.optional import import_timm
from orthosparse.lab.seeds import fenced
from orthosparse.randomness import draw_seed

_SIZES = {"mlp": (1, 28, 28), "mlp1000": (1, 28, 28), "resnet50": (3, 224, 224), "deit3_small": (3, 224, 224)}
_SMALL = (3, 32, 32)  # the other networks of the paper


@dataclass(frozen=True, eq=False)
class Target:
    """A model with its weights as it came, and the shape of one input."""

    name: str
    model: nn.Module
    in_shape: tuple[int, ...]


def resolve(
    name: str,
    *,
    in_shape: tuple[int, ...] | None = None,
    classes: int | None = None,
    activation: str | None = None,
    generator: Generator | None = None,
) -> Target:
    """Return the model called `name`: a member of MODELS, ``timm:NAME``, or ``path/to/file.py:function``.

    Args:
        in_shape: of one input; built-in and timm models have one of their own.
        classes: built-in and timm models: outputs, 10 by default and 1000 for timm's.
        activation: built-in models: instead of their own.

    Raises:
        ValueError: no such model, or a file's model without `in_shape`.
        FileNotFoundError: no such file.
    """
    if ".py:" in name:
        return _from_file(name, in_shape, classes, activation, generator)
    in_shape = in_shape or _own_shape(name)
    if len(in_shape) != 3:
        raise ValueError(f"input: expected CHANNELSxHEIGHTxWIDTH for {name}; got {'x'.join(map(str, in_shape))}")
    images = (in_shape[0], in_shape[1], in_shape[2])
    outputs = classes or (1000 if name.startswith("timm:") or name in ("resnet50", "deit3_small") else 10)
    model = build(name, classes=outputs, in_shape=images, activation=activation, generator=generator)
    return Target(name, model, in_shape)


def outputs_of(target: Target, pick: Callable[[Any], Any] | None = None) -> int:
    """Return how many logits the model gives for one input."""
    was_training = target.model.training
    like = next(target.model.parameters())
    target.model.eval()
    with torch.no_grad():
        result = target.model(torch.zeros(1, *target.in_shape, dtype=like.dtype, device=like.device))
    target.model.train(was_training)
    logits = result if pick is None else pick(result)
    if not isinstance(logits, torch.Tensor) or logits.dim() != 2:
        came = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ValueError(f"output: expected logits [batch, classes], of an entry that --output may name; got {came}")
    return logits.shape[1]


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the sides in ``3x224x224``.

    Example:
        >>> parse_shape("3x32x32")
        (3, 32, 32)
    """
    try:
        sides = tuple(int(side) for side in text.lower().split("x"))
    except ValueError:
        sides = ()
    if not sides or min(sides) < 1:
        raise ValueError(f"input: expected sides such as 3x224x224; got {text!r}")
    return sides


def _own_shape(name: str) -> tuple[int, ...]:
    if not name.startswith("timm:"):
        return _SIZES.get(name, _SMALL)
    known = import_timm().models.get_pretrained_cfg(name.removeprefix("timm:"), allow_unregistered=True)
    return tuple(known.input_size) if known is not None else (3, 224, 224)


def _from_file(
    name: str,
    in_shape: tuple[int, ...] | None,
    classes: int | None,
    activation: str | None,
    generator: Generator | None,
) -> Target:
    path, _, function = name.rpartition(":")
    make = _function(Path(path).expanduser(), function)
    given = {"in_shape": in_shape, "classes": classes, "activation": activation}
    taken = set(inspect.signature(make).parameters)
    if refused := [option for option in ("classes", "activation") if given[option] is not None and option not in taken]:
        raise ValueError(f"{refused[0]}: expected none, as {function} in {path} takes no such argument")
    if in_shape is None:
        raise ValueError(f"input: expected the shape of one input of {name}, such as 3x224x224; got none")
    with fenced(draw_seed(generator)):  # torch's constructors draw from the global generator
        model = make(**{option: value for option, value in given.items() if option in taken and value is not None})
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected {function} in {path} to return a torch.nn.Module; got {type(model).__name__}")
    return Target(name, model, in_shape)


def _function(path: Path, name: str) -> Callable[..., Any]:
    if not path.is_file():
        raise FileNotFoundError(f"model: expected a file at {path}; there is none")
    spec = importlib.util.spec_from_file_location(f"orthosparse_inspected_{path.stem}", path)
    assert spec is not None, "a path that ends in .py has a loader"
    assert spec.loader is not None, "and it is a source loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in the file look themselves up
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        functions = sorted(key for key, value in vars(module).items() if inspect.isroutine(value))
        raise ValueError(f"model: expected a function of {path} ({', '.join(functions) or 'none'}); got {name!r}")
    return found  # type: ignore[no-any-return]
