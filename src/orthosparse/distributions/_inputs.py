"""The inputs of scores: finite weights that are not sharded, and batches of data, checked before the model runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import torch
from torch import Tensor, nn

from orthosparse.aliases import Scores
from orthosparse.checks import check_finite, named_on_error
from orthosparse.distributed import is_sharded
from orthosparse.layers import Layer
from orthosparse.substitution import copied

Batch: TypeAlias = tuple[Any, Any]
_EXPECTED = "expected (inputs, targets), or an iterable of such pairs"


def weights_of(layers: Mapping[str, Layer]) -> Scores:
    """Return the weights, detached, not copied.

    Raises:
        ValueError: a layer has weights that are not finite.
    """
    weights = {name: layer.parameter().detach() for name, layer in layers.items()}
    check_finite(weights, "model: expected finite weights")
    return weights


def keys_of(model: nn.Module, layers: Mapping[str, Layer]) -> dict[str, str]:
    """Return the name of each layer's parameter in `model`.

    Raises:
        ValueError: the parameters are sharded: a forward pass would gather them over the substituted ones.
    """
    for name, parameter in model.named_parameters():
        if is_sharded(parameter):
            raise ValueError(f"model: expected whole parameters to score; {name!r} is sharded: score before sharding")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {name: names[id(layer.parameter())] for name, layer in layers.items()}


def batches_of(batch: Any, model: nn.Module, asker: str) -> Iterator[Batch]:
    """Return the pairs in `batch`: itself where one of its two items is no pair, else those it iterates over.

    Raises:
        TypeError: something that is neither.
        ValueError: no data, or data on a device where the model has no parameter.
    """
    if batch is None:
        raise ValueError(f"batch: {asker} needs data; {_EXPECTED}; got None")
    if not isinstance(batch, Iterable) or isinstance(batch, Tensor | Mapping | str):
        raise TypeError(f"batch: {_EXPECTED}; got {type(batch).__name__}")
    pairs = [batch] if _is_pair(batch) and any(isinstance(item, Tensor | Mapping | None) for item in batch) else batch
    return _checked(pairs, {parameter.device for parameter in model.parameters()})


def _checked(pairs: Iterable[Any], devices: set[torch.device]) -> Iterator[Batch]:
    pair = None
    for number, pair in enumerate(pairs):
        if not _is_pair(pair):
            raise TypeError(f"batch: {_EXPECTED}; number {number} of them is {type(pair).__name__}")
        inputs, targets = pair
        for tensor in (*tensors_in(inputs), *([targets] if isinstance(targets, Tensor) else [])):
            if tensor.device not in devices:
                listed = ", ".join(sorted(map(str, devices)))
                raise ValueError(f"batch: expected tensors on {listed}, where the model is; got one on {tensor.device}")
        yield inputs, targets
    if pair is None:
        raise ValueError(f"batch: {_EXPECTED}; got none")


def tensors_in(inputs: Any) -> list[Tensor]:
    """Return the tensors among a model's inputs: one, a tuple of positional or a mapping of keyword arguments."""
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs.values())
    return [item for item in (inputs if isinstance(inputs, tuple | list) else [inputs]) if isinstance(item, Tensor)]


def outputs_on(model: nn.Module, inputs: Any) -> Any:
    """Return the output of `model` for copies of `inputs`; raise an error about the batch if it cannot take them."""
    with named_on_error("batch", f"the model cannot take inputs of {describe(inputs)}"):
        if isinstance(inputs, Mapping):
            return model(**copied(dict(inputs)))
        return model(*copied(inputs)) if isinstance(inputs, tuple | list) else model(copied(inputs))


def describe(value: Any) -> str:
    """Return the shapes and types in a value, for a message."""
    tensors = tensors_in(value)
    if not tensors:
        return f"type {type(value).__name__}"
    shapes = ", ".join(f"shape {tuple(t.shape)} and {t.dtype} on {t.device}" for t in tensors)
    return shapes if isinstance(value, Tensor) else f"{type(value).__name__} of {shapes}"


def _is_pair(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, tuple | list) and len(value) == 2
