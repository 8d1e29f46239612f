"""Which model is meant: a built-in one, one of timm's, or what a function in a file returns."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from orthosparse.lab.inspection.head import Head
from orthosparse.lab.inspection.tokens import embedding_of
from orthosparse.lab.models import build
from orthosparse.lab.models.from_file import from_file
from orthosparse.lab.names import is_function
from orthosparse.lab.optional import import_timm
from orthosparse.lab.seeds import fenced
from orthosparse.randomness import draw_seed

_SIZES = {"mlp": (1, 28, 28), "mlp1000": (1, 28, 28), "resnet50": (3, 224, 224), "deit3_small": (3, 224, 224)}
_SMALL = (3, 32, 32)  # the other networks of the paper
_TOKENS = "tokens:"


@dataclass(frozen=True, eq=False)
class Target:
    """A model with its weights as it came, and the shape of one input.

    Attributes:
        embedding: the name of the module that reads the input, where that is made of tokens.
        vocabulary: how many tokens there are.
    """

    name: str
    model: nn.Module
    in_shape: tuple[int, ...]
    embedding: str | None = None
    vocabulary: int = 0


def resolve(
    name: str,
    *,
    in_shape: tuple[int, ...] | None = None,
    tokens: bool = False,
    classes: int | None = None,
    activation: str | None = None,
    generator: Generator | None = None,
) -> Target:
    """Return the model called `name`: a member of MODELS, ``timm:NAME``, or ``path/to/file.py:function``.

    Args:
        in_shape: of one input; built-in and timm models have one of their own.
        tokens: the input is made of tokens, for a file's model; their number is that of its embedding.
        classes: built-in and timm models: outputs, 10 by default and 1000 for timm's.
        activation: built-in models: instead of their own.

    Raises:
        ValueError: no such model, or a file's model without `in_shape`.
        FileNotFoundError: no such file.
    """
    if is_function(name):
        return _from_file(name, in_shape, tokens, classes, activation, generator)
    in_shape = in_shape or _own_shape(name)
    if len(in_shape) != 3 or tokens:
        raise ValueError(f"input: expected CHANNELSxHEIGHTxWIDTH for {name}; got {shape_text(in_shape, tokens)}")
    images = (in_shape[0], in_shape[1], in_shape[2])
    outputs = classes or (1000 if name.startswith("timm:") or name in ("resnet50", "deit3_small") else 10)
    model = build(name, classes=outputs, in_shape=images, activation=activation, generator=generator)
    return Target(name, model, in_shape)


def head_of(target: Target, head: Head) -> tuple[Head, tuple[int, ...]]:
    """Return the head with its axis of classes, and the shape of the logits of one input.

    Raises:
        ValueError: the model does not take the input, or what it returns are no logits.
    """
    logits = head.logits(_answer(target))
    if not isinstance(logits, Tensor) or logits.dim() < 2:
        came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"output: expected logits [batch, classes, ...], of an entry that --output may name; got {came}"
        )
    last = target.embedding is not None and logits.dim() > 2  # language models: [batch, tokens, classes]
    return Head(head.pick, -1 if last else 1), tuple(logits.shape)


def parse_input(text: str, option: str = "input") -> tuple[tuple[int, ...], bool]:
    """Return the sides in ``3x224x224`` or ``tokens:128``, and whether they are of tokens.

    Args:
        option: the name that an error has for it.

    Example:
        >>> parse_input("3x32x32"), parse_input("tokens:128")
        (((3, 32, 32), False), ((128,), True))
    """
    tokens = text.lower().startswith(_TOKENS)
    try:
        sides = tuple(int(side) for side in text.lower().removeprefix(_TOKENS).split("x"))
    except ValueError:
        sides = ()
    if not sides or min(sides) < 1:
        raise ValueError(f"{option}: expected sides such as 3x224x224, or tokens:128; got {text!r}")
    return sides, tokens


def shape_text(in_shape: Sequence[int], tokens: bool = False) -> str:
    """Return a shape as `parse_input` reads it.

    Example:
        >>> shape_text((3, 32, 32)), shape_text((128,), tokens=True)
        ('3x32x32', 'tokens:128')
    """
    return f"{_TOKENS * tokens}{'x'.join(map(str, in_shape))}"


def _answer(target: Target) -> object:
    """What the model returns for one input, in eval mode and without a trace on it."""
    model, was_training = target.model, target.model.training
    like = next(model.parameters())
    kind = like.dtype if target.embedding is None else torch.int64
    try:
        with torch.no_grad():
            return model.eval()(torch.zeros(1, *target.in_shape, dtype=kind, device=like.device))
    except (RuntimeError, IndexError) as error:
        reads = target.embedding is None and any(isinstance(module, nn.Embedding) for module in model.modules())
        hint = f"; a model of tokens takes --input {shape_text(target.in_shape, tokens=True)}" if reads else ""
        given = shape_text(target.in_shape, target.embedding is not None)
        raise ValueError(f"input: expected one that {target.name} takes; got {given}: {error}{hint}") from error
    finally:
        model.train(was_training)


def _own_shape(name: str) -> tuple[int, ...]:
    if not name.startswith("timm:"):
        return _SIZES.get(name, _SMALL)
    known = import_timm().models.get_pretrained_cfg(name.removeprefix("timm:"), allow_unregistered=True)
    return tuple(known.input_size) if known is not None else (3, 224, 224)


def _from_file(
    name: str,
    in_shape: tuple[int, ...] | None,
    tokens: bool,
    classes: int | None,
    activation: str | None,
    generator: Generator | None,
) -> Target:
    if in_shape is None:
        raise ValueError(f"input: expected the shape of one input of {name}, such as 3x224x224 or tokens:128; got none")
    with fenced(draw_seed(generator)):  # torch's constructors draw from the global generator
        model = from_file(name, in_shape=in_shape, classes=classes, activation=activation)
    if not tokens:
        return Target(name, model, in_shape)
    embedding = embedding_of(model, in_shape)
    module = model.get_submodule(embedding)
    assert isinstance(module, nn.Embedding), "embedding_of finds no other"
    return Target(name, model, in_shape, embedding, module.num_embeddings)
