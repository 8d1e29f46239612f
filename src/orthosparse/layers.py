"""Which tensors of a model are sparsified, and which matrices each of them holds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from orthosparse._layers_matrices import cut, cuts
from orthosparse._layers_tensors import has_one_leaf, is_pruned, tensor_names, tensors_of
from orthosparse._layers_tensors import leaf as leaf
from orthosparse.selection import Selection, Selector, fits

Split = Mapping[str, int | Sequence[int]]

# Last name of a Linear that holds query, key and value one after the other, in timm's and Hugging Face's models.
_FUSED = {"qkv", "to_qkv", "Wqkv", "qkv_proj", "in_proj_qkv", "c_attn", "kv", "to_kv"}


@dataclass(frozen=True, eq=False)
class Layer:
    """One tensor of a model, and how matrices lie in it.

    Attributes:
        name: its key in Masks: the module's name when the tensor is called ``weight``, else ``module.tensor``.
        kind: ``linear``, ``conv`` or ``recurrent``.
        groups: convolution groups.
        blocks: output sizes of the matrices that lie in it one after the other (fused qkv, gates); one entry otherwise.
        transposed: stored as (in, out, ...).
        biases: the bias parameters of `module` that go with it.
        tied: other places that hold the same parameter.
    """

    name: str
    module: nn.Module
    module_name: str
    tensor: str
    kind: str
    blocks: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    biases: tuple[str, ...] = ()
    tied: tuple[tuple[nn.Module, str], ...] = ()

    @cached_property
    def shape(self) -> torch.Size:
        """The tensor's shape (the whole one when it is sharded)."""
        return self.parameter().shape

    @property
    def numel(self) -> int:
        """How many weights it has."""
        return math.prod(self.shape)

    @property
    def taps(self) -> int:
        """Positions of the kernel; 1 for a matrix."""
        return math.prod(self.shape[2:])

    @property
    def floor(self) -> int:
        """The fewest active entries with which every matrix in it can be orthogonal."""
        return sum(min(shape) for shape in self.shapes)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(out, in) of each matrix in it, in the order of `matrices`."""
        stored = self.shape[0] // self.groups, self.shape[1]
        rows, inputs = reversed(stored) if self.transposed else stored
        return [(last - first, inputs) for _, first, last in cuts(self.groups, rows, self.blocks)]

    @property
    def depthwise(self) -> bool:
        """Whether every group has a single input channel (or a single output one, transposed)."""
        return self.groups > 1 and self.shape[1] == 1

    def parameter(self) -> nn.Parameter:
        """Return the leaf tensor that an optimizer sees."""
        return leaf(self.module, self.tensor)

    def weight(self) -> torch.Tensor:
        """Return the tensor as the module uses it, masked where a mask is attached, detached."""
        value: torch.Tensor = getattr(self.module, self.tensor)
        return value.detach()

    def matrices(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return views of a contiguous `tensor` of this layer's shape as stacks ``[how_many, out, in, taps]``."""
        stack = tensor.view(self.groups, tensor.shape[0] // self.groups, tensor.shape[1], self.taps)
        return cut(stack.transpose(1, 2) if self.transposed else stack, self.blocks)


def layer_name(module_name: str, tensor: str) -> str:
    """Return the key of a tensor in Masks.

    Example:
        >>> layer_name("layer1.0.conv1", "weight"), layer_name("attn", "in_proj_weight"), layer_name("", "weight")
        ('layer1.0.conv1', 'attn.in_proj_weight', 'weight')
    """
    if tensor == "weight" and module_name:
        return module_name
    return f"{module_name}.{tensor}" if module_name else tensor


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the user's module inside DistributedDataParallel, DataParallel and torch.compile wrappers."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def find_layers(
    model: nn.Module,
    *,
    include: Sequence[Selector] | Selector | None = None,
    exclude: Sequence[Selector] | Selector = (),
    split: Split | None = None,
) -> dict[str, Layer]:
    """Return the layers of `model` that are to be sparsified, by name, in module order.

    By default: Linear, convolutions, attention projections, recurrent weights, Hugging Face's Conv1D, and what modules
    of your own declare: ``__orthosparse__ = {"w_in": "in out", "w_out": "out in"}`` in such a class says which of its
    parameters are matrices and how they are stored (one word a side; a kernel has ``tap`` for its further ones). Never
    embeddings (nor what is tied to them), norms, biases, frozen tensors, or those without entries.

    Args:
        include: only these. A frozen tensor, or one tied to an embedding, must be named, itself or a module around it:
            globs, types and callables pass over it. Modules that declare nothing then count as stored ``out in``.
        exclude: not these. A selector is a module's name, a glob over names, a module type, or a callable
            ``(name, module) -> bool``; it stands for the module and all below it. A string may also name a tensor
            (``"mixer.weight_b"``).
        split: fused matrices by module or tensor, name or glob: the number of equal blocks, or their output sizes. In
            a convolution with groups, what a group and a block have in common is a matrix of its own.

    Raises:
        TypeError: something that is not a selector, or not a split.
        ValueError: a name or glob that matches nothing, a split that does not fit, or a tensor that cannot be masked.

    Example:
        >>> [*find_layers(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)), exclude=["2"])]
        ['0']
    """
    model = unwrapped(model)
    wanted = None if include is None else Selection(model, include, "include")
    unwanted = Selection(model, exclude, "exclude")
    pieces = _Splits(model, {} if split is None else split)
    places = _places(model)
    layers: dict[int, Layer] = {}
    for layer in _candidates(model, everything=wanted is not None):
        place = layer.module_name, layer.tensor
        if unwanted.matches(*place) or not (wanted is None or wanted.matches(*place)):
            continue
        _check_can_be_masked(layer)
        parameter = layer.parameter()
        named = wanted is not None and wanted.names(*place)
        if not layer.numel or (_is_shy(layer, places[id(parameter)]) and not named):
            continue
        if id(parameter) not in layers:
            tied = [(m, t) for m, t in places[id(parameter)] if (m, t) != (layer.module, layer.tensor)]
            layers[id(parameter)] = replace(layer, blocks=pieces.blocks_of(layer), tied=tuple(tied))
    return {layer.name: layer for layer in layers.values()}


def _candidates(model: nn.Module, *, everything: bool) -> Iterator[Layer]:
    for module_name, module in model.named_modules():
        if isinstance(module, ParametrizationList):
            continue
        for tensor, facts in tensors_of(module, module_name, everything=everything):
            yield Layer(layer_name(module_name, tensor), module, module_name, tensor, **facts)


def _is_shy(layer: Layer, places: list[tuple[nn.Module, str]]) -> bool:
    """Whether a tensor is left alone unless it is named: frozen, or an embedding that another module uses too."""
    embeddings = (nn.Embedding, nn.EmbeddingBag)
    embedded = any(isinstance(module, embeddings) for module, _ in places) and not isinstance(layer.module, embeddings)
    return embedded or not layer.parameter().requires_grad


def _check_can_be_masked(layer: Layer) -> None:
    if is_pruned(layer.module, layer.tensor):
        raise ValueError(
            f"model: {layer.name!r} has a mask of torch.nn.utils.prune; import_prune_masks takes that over, "
            "torch.nn.utils.prune.remove makes it permanent; or exclude it"
        )
    if not has_one_leaf(layer.module, layer.tensor):
        raise ValueError(
            f"model: {layer.name!r} is computed from several tensors (weight norm?); remove that, or exclude it"
        )
    if isinstance(layer.parameter(), nn.parameter.UninitializedParameter):
        raise ValueError(f"model: {layer.name!r} has no shape yet; run the lazy module on a batch first")


def _places(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Every (module, tensor) that holds a given parameter, by the parameter's id."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for tensor in tensor_names(module):
            if has_one_leaf(module, tensor) and not isinstance(module, ParametrizationList):
                places.setdefault(id(leaf(module, tensor)), []).append((module, tensor))
    return places


class _Splits:
    """The user's `split`, then what names tell of fused matrices."""

    def __init__(self, model: nn.Module, split: Split) -> None:
        if not isinstance(split, Mapping) or not all(isinstance(name, str) for name in split):
            raise TypeError(f"split: expected a mapping from names to numbers or sizes of blocks; got {split!r}")
        tensors = [name for name, _ in model.named_parameters(remove_duplicate=False)]
        names = [*tensors, *(name for name, _ in model.named_modules())]
        for pattern in split:
            if not any(fits(pattern, name) for name in names):
                raise ValueError(f"split: expected names of modules; {pattern!r} matches none of this model")
        self.split = split

    def blocks_of(self, layer: Layer) -> tuple[int, ...]:
        for pattern, pieces in self.split.items():
            if fits(pattern, layer.module_name) or fits(pattern, f"{layer.module_name}.{layer.tensor}".lstrip(".")):
                return _blocks(layer, pieces)
        if layer.kind == "linear" and len(layer.blocks) == 1 and layer.module_name.rsplit(".", 1)[-1] in _FUSED:
            out, inputs = layer.blocks[0], layer.shape[0 if layer.transposed else 1]
            if out in (2 * inputs, 3 * inputs):
                return (inputs,) * (out // inputs)
        return layer.blocks


def _blocks(layer: Layer, pieces: int | Sequence[int]) -> tuple[int, ...]:
    out, sizes = sum(layer.blocks), [pieces] if isinstance(pieces, int) else pieces
    if not isinstance(sizes, Sequence) or any(isinstance(each, bool) or not isinstance(each, int) for each in sizes):
        raise TypeError(f"split: expected an integer or a sequence of integers for {layer.name!r}; got {pieces!r}")
    if isinstance(pieces, int) and pieces > 0 and out % pieces == 0:
        return (out // pieces,) * pieces
    if not isinstance(pieces, int) and sum(pieces) == out and min(pieces) > 0:
        return tuple(pieces)
    raise ValueError(
        f"split: expected a divisor or a partition of {out}, the outputs of {layer.name!r}; got {pieces!r}"
    )
