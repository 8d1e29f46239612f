"""Which tensors of a model are sparsified, and which matrices each of them holds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from orthosparse.selection import Selection, Selector, fits

Split = Mapping[str, int | Sequence[int]]

# Last name of a Linear that holds query, key and value one after the other, in timm's and Hugging Face's models.
_FUSED = {"qkv", "to_qkv", "Wqkv", "qkv_proj", "in_proj_qkv", "c_attn", "kv", "to_kv"}
_GATES = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1, nn.LSTMCell: 4, nn.GRUCell: 3, nn.RNNCell: 1}


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
        inputs = self.shape[0 if self.transposed else 1]
        if self.kind == "conv":
            inside = inputs // self.groups if self.transposed else inputs
            return self.groups * min(self.blocks[0] // self.groups, inside)
        return sum(min(block, inputs) for block in self.blocks)

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
        if self.kind == "conv":
            stack = tensor.view(self.groups, tensor.shape[0] // self.groups, tensor.shape[1], -1)
            return [stack.transpose(1, 2) if self.transposed else stack]
        matrix = tensor.T if self.transposed else tensor
        parts = matrix.split(self.blocks)
        if len(set(self.blocks)) == 1:
            parts = (matrix.unflatten(0, (len(self.blocks), self.blocks[0])),)
        return [
            part.view(-1, *part.shape[-2:]).unsqueeze(-1) if part.dim() == 3 else part[None, :, :, None]
            for part in parts
        ]


def leaf(module: nn.Module, tensor: str) -> nn.Parameter:
    """Return the parameter behind ``module.tensor``: the original one where a parametrization stands before it."""
    parametrizations = getattr(module, "parametrizations", None)
    if parametrizations is not None and tensor in parametrizations:
        return parametrizations[tensor].original  # type: ignore[no-any-return]
    return module._parameters[tensor]  # type: ignore[return-value]


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

    By default: Linear, convolutions, attention projections, recurrent weights and Hugging Face's Conv1D; never
    embeddings (nor what is tied to them), norms, biases, or frozen tensors.

    Args:
        include: only these; also the way to name a frozen tensor, an embedding, or a tensor of a module of your own.
        exclude: not these. A selector is a module's name, a glob over names, a module type, or a callable
            ``(name, module) -> bool``; it stands for the module and all below it. A string may also name a tensor
            (``"mixer.weight_b"``).
        split: fused matrices by module name or glob: the number of equal blocks, or their output sizes.

    Raises:
        ValueError: a name or glob that matches nothing, a split that does not fit, or a tensor that cannot be masked.

    Example:
        >>> [*find_layers(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)), exclude=["2"])]
        ['0']
    """
    model = unwrapped(model)
    wanted = None if include is None else Selection(model, include, "include")
    unwanted = Selection(model, exclude, "exclude")
    pieces = _Splits(model, split or {})
    places = _places(model)
    layers: dict[int, Layer] = {}
    for layer in _candidates(model, everything=wanted is not None):
        if unwanted.matches(layer.module_name, layer.tensor) or (
            wanted is not None and not wanted.matches(layer.module_name, layer.tensor)
        ):
            continue
        parameter = layer.parameter()
        if wanted is None and (not parameter.requires_grad or _is_embedded(places[id(parameter)])):
            continue
        if id(parameter) not in layers:
            tied = [(m, t) for m, t in places[id(parameter)] if (m, t) != (layer.module, layer.tensor)]
            layers[id(parameter)] = replace(layer, blocks=pieces.blocks_of(layer), tied=tuple(tied))
    return {layer.name: layer for layer in layers.values()}


def _candidates(model: nn.Module, *, everything: bool) -> Iterator[Layer]:
    for module_name, module in model.named_modules():
        for tensor, facts in _tensors_of(module, everything=everything):
            _check_can_be_masked(module, module_name, tensor)
            yield Layer(layer_name(module_name, tensor), module, module_name, tensor, **facts)


def _tensors_of(module: nn.Module, *, everything: bool) -> Iterator[tuple[str, dict]]:  # type: ignore[type-arg]
    """The tensors of one module that hold matrices, each with the facts its Layer needs."""
    has = _tensor_names(module)
    if isinstance(module, _ConvNd):
        facts = {"groups": module.groups, "transposed": isinstance(module, _ConvTransposeNd)}
        yield "weight", {"kind": "conv", "blocks": (module.out_channels,), "biases": _present(has, "bias"), **facts}
    elif isinstance(module, nn.Linear):
        yield "weight", {"kind": "linear", "blocks": (module.out_features,), "biases": _present(has, "bias")}
    elif isinstance(module, nn.MultiheadAttention):
        d = module.embed_dim
        for tensor in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if tensor in has:
                fused = tensor == "in_proj_weight"
                biases = _present(has, "in_proj_bias") if tensor in ("in_proj_weight", "q_proj_weight") else ()
                yield tensor, {"kind": "linear", "blocks": (d, d, d) if fused else (d,), "biases": biases}
    elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
        gates = next(number for kind, number in _GATES.items() if isinstance(module, kind))
        for tensor in sorted(has):  # by name: the order does not change when masks are attached
            if tensor.startswith("weight_"):
                rows = leaf(module, tensor).shape[0]
                gate = 1 if tensor.startswith("weight_hr") else gates
                biases = _present(has, tensor.replace("weight", "bias"))
                yield tensor, {"kind": "recurrent", "blocks": (rows // gate,) * gate, "biases": biases}
    elif any(kind.__name__ == "Conv1D" for kind in type(module).__mro__) and "weight" in has:
        out = leaf(module, "weight").shape[1]
        yield "weight", {"kind": "linear", "blocks": (out,), "transposed": True, "biases": _present(has, "bias")}
    elif everything:
        for tensor in has:
            value = leaf(module, tensor)
            if value.dim() >= 2:
                yield tensor, {"kind": "linear" if value.dim() == 2 else "conv", "blocks": (value.shape[0],)}


def _tensor_names(module: nn.Module) -> list[str]:
    """The parameters of one module that are there, those behind a parametrization included."""
    plain = [name for name, value in module._parameters.items() if value is not None]
    return [*plain, *getattr(module, "parametrizations", ())]


def _present(names: list[str], name: str) -> tuple[str, ...]:
    return (name,) if name in names else ()


def _check_can_be_masked(module: nn.Module, module_name: str, tensor: str) -> None:
    where = layer_name(module_name, tensor)
    if not _has_one_leaf(module, tensor):
        raise ValueError(
            f"model: {where!r} is computed from several tensors (weight norm?); remove that, or exclude it"
        )
    if isinstance(leaf(module, tensor), nn.parameter.UninitializedParameter):
        raise ValueError(f"model: {where!r} has no shape yet; run the lazy module on a batch first")


def _has_one_leaf(module: nn.Module, tensor: str) -> bool:
    parametrizations = getattr(module, "parametrizations", {})
    return tensor not in parametrizations or hasattr(parametrizations[tensor], "original")


def _places(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Every (module, tensor) that holds a given parameter, by the parameter's id."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for tensor in _tensor_names(module):
            if _has_one_leaf(module, tensor):
                places.setdefault(id(leaf(module, tensor)), []).append((module, tensor))
    return places


def _is_embedded(places: list[tuple[nn.Module, str]]) -> bool:
    return any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module, _ in places)


class _Splits:
    """The user's `split`, then what names tell of fused matrices."""

    def __init__(self, model: nn.Module, split: Split) -> None:
        names = [name for name, _ in model.named_modules()]
        for pattern in split:
            if not any(fits(pattern, name) for name in names):
                raise ValueError(f"split: expected names of modules; {pattern!r} matches none of this model")
        self.split = split

    def blocks_of(self, layer: Layer) -> tuple[int, ...]:
        for pattern, pieces in self.split.items():
            if fits(pattern, layer.module_name):
                return _blocks(layer, pieces)
        if layer.kind == "linear" and len(layer.blocks) == 1 and layer.module_name.rsplit(".", 1)[-1] in _FUSED:
            out, inputs = layer.blocks[0], layer.shape[0 if layer.transposed else 1]
            if out in (2 * inputs, 3 * inputs):
                return (inputs,) * (out // inputs)
        return layer.blocks


def _blocks(layer: Layer, pieces: int | Sequence[int]) -> tuple[int, ...]:
    out = sum(layer.blocks)
    if isinstance(pieces, int) and not isinstance(pieces, bool) and pieces > 0 and out % pieces == 0:
        return (out // pieces,) * pieces
    if not isinstance(pieces, int) and sum(pieces) == out and min(pieces) > 0:
        return tuple(pieces)
    raise ValueError(
        f"split: expected a divisor or a partition of {out}, the outputs of {layer.name!r}; got {pieces!r}"
    )
