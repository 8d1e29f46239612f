"""Which tensors of a model are sparsified."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from orthosparse.checks import check_at_least, check_model
from orthosparse.choices import StructureName
from orthosparse.layers.fused import fused_parts
from orthosparse.layers.layer import Layer, layer_name, unwrapped
from orthosparse.layers.tensors import is_pruned, tensors_of
from orthosparse.parametrized import has_one_leaf, leaf, plain_modules, tensor_names
from orthosparse.selection import Selection, Selector, matches_pattern
from orthosparse.structures import ENTRIES, TWO_OF_FOUR, check_structure, fitting

Split = Mapping[str, int | Sequence[int] | Mapping[str, Any]]


def find_layers(
    model: nn.Module,
    *,
    include: Sequence[Selector] | Selector | None = None,
    exclude: Sequence[Selector] | Selector = (),
    split: Split | None = None,
    structure: StructureName | str = ENTRIES,
) -> dict[str, Layer]:
    """Return the layers of `model` that are to be sparsified, by name, in module order.

    By default: Linear, convolutions, attention projections, recurrent weights, Hugging Face's Conv1D and stacks of
    experts, and what modules of your own declare: ``__orthosparse__ = {"w_in": "in out", "w_out": "out in"}`` in such a
    class says which of its parameters are matrices and how they are stored (one word a side; a kernel has ``tap`` for
    its further ones, a stack of matrices has ``expert`` for its first: ``"expert out in"``). Never embeddings (nor what
    is tied to them), norms, biases, frozen tensors, or those without entries.

    Query, key and value that one Linear holds are matrices of their own: their sizes are read off the module around it
    and its configuration. Where that tells nothing, the layer is one matrix, and its `note` says so.

    Args:
        include: only these. A frozen tensor, or one tied to an embedding, must be named, itself or a module around it:
            globs, types and callables pass over it. Modules that declare nothing then count as stored ``out in``.
        exclude: not these. A selector is a module's name, a glob over names, a module type, or a callable
            ``(name, module) -> bool``; it stands for the module and all below it. A string may also name a tensor
            (``"mixer.weight_b"``).
        split: fused matrices by module or tensor, name or glob: the number of equal parts, or their output sizes, or
            ``{"parts": 3, "repeats": heads}`` where their rows alternate, head by head. In a convolution with groups,
            what a group and a part have in common is a matrix of its own.
        structure: the units that are active or not: ``"entries"``; ``"block:64"``, square blocks (a layer that the
            block does not divide has the largest power of two from 16 on that does, and entries where there is none,
            where a kernel has several taps, or in stacks of experts); or ``"2:4"``, two of any aligned four along rows
            and along columns, which every layer must allow.

    Raises:
        TypeError: something that is not a selector, or not a split.
        ValueError: a name or glob that matches nothing, a split that does not fit, a tensor that cannot be masked, an
            unknown structure, or sides that four does not divide where it is ``"2:4"``.

    Example:
        >>> [*find_layers(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)), exclude=["2"])]
        ['0']
    """
    check_structure(structure)
    model = unwrapped(check_model(model))
    wanted = None if include is None else Selection(model, include, "include")
    unwanted = Selection(model, exclude, "exclude")
    splits = _Splits(model, {} if split is None else split)
    owners = _owners(model)
    layers: dict[int, Layer] = {}
    for layer in _candidates(model, everything=wanted is not None):
        names = layer.module_name, layer.tensor
        if unwanted.matches(*names) or not (wanted is None or wanted.matches(*names)):
            continue
        _check_can_be_masked(layer)
        parameter = layer.parameter()
        named = wanted is not None and wanted.names(*names)
        if not layer.numel or (_is_protected(layer, owners[id(parameter)]) and not named):
            continue
        if id(parameter) not in layers:
            tied = [(m, t) for m, t in owners[id(parameter)] if (m, t) != (layer.module, layer.tensor)]
            layer = replace(layer, **splits.facts_of(layer), tied=tuple(tied))
            layers[id(parameter)] = replace(layer, structure=_fitting(structure, layer))
    unfit = [layer.name for layer in layers.values() if layer.structure != TWO_OF_FOUR]
    if structure == TWO_OF_FOUR and unfit:
        raise ValueError(f"structure: '2:4' takes matrices whose sides four divides; exclude {', '.join(unfit)}")
    return {layer.name: layer for layer in layers.values()}


def _fitting(structure: str, layer: Layer) -> str:
    """The structure that this layer gets."""
    if layer.taps > 1 or layer.stacked:
        return ENTRIES
    pieces = [part // layer.repeats for part in layer.parts]  # rows that lie side by side
    return fitting(structure, [*pieces, *(side for shape in layer.shapes for side in shape)])


def _candidates(model: nn.Module, *, everything: bool) -> Iterator[Layer]:
    for module_name, module in plain_modules(model):
        for tensor, facts in tensors_of(module, module_name, everything=everything):
            yield Layer(layer_name(module_name, tensor), module, module_name, tensor, **facts)


def _is_protected(layer: Layer, owners: list[tuple[nn.Module, str]]) -> bool:
    """Whether a tensor is left alone unless it is named: frozen, or an embedding that another module uses too."""
    embeddings = (nn.Embedding, nn.EmbeddingBag)
    embedded = any(isinstance(module, embeddings) for module, _ in owners) and not isinstance(layer.module, embeddings)
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


def _owners(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Every (module, tensor) that holds a given parameter, by the parameter's id."""
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for _, module in plain_modules(model):
        for tensor in tensor_names(module):
            if has_one_leaf(module, tensor):
                owners.setdefault(id(leaf(module, tensor)), []).append((module, tensor))
    return owners


class _Splits:
    """The user's `split`, then what names tell of fused matrices."""

    def __init__(self, model: nn.Module, split: Split) -> None:
        if not isinstance(split, Mapping) or not all(isinstance(name, str) for name in split):
            raise TypeError(f"split: expected a mapping from names to numbers or sizes of parts; got {split!r}")
        tensors = [name for name, _ in model.named_parameters(remove_duplicate=False)]
        names = [*tensors, *(name for name, _ in model.named_modules())]
        for pattern in split:
            if not any(matches_pattern(pattern, name) for name in names):
                raise ValueError(f"split: expected names of modules; {pattern!r} matches none of this model")
        self.split, self.modules = split, dict(model.named_modules())

    def facts_of(self, layer: Layer) -> dict[str, Any]:
        """Return the parts of a layer and how often they alternate, with a note where that is not known."""
        for pattern, pieces in self.split.items():
            if matches_pattern(pattern, layer.module_name) or matches_pattern(
                pattern, f"{layer.module_name}.{layer.tensor}".lstrip(".")
            ):
                return _split(layer, pieces)
        facts: dict[str, Any] = {"parts": layer.parts, "repeats": layer.repeats}
        if layer.kind != "linear" or layer.stacked or len(layer.parts) > 1:
            return facts
        parent, _, name = layer.module_name.rpartition(".")
        around = self.modules.get(parent, layer.module)
        parts = fused_parts(name, around, layer.parts[0], layer.shape[0 if layer.transposed else 1])
        if parts is None:
            return facts | {"note": "fused, its parts unknown: one matrix; split= says which"}
        return {"parts": parts.sizes, "repeats": parts.repeats}


def _split(layer: Layer, pieces: int | Sequence[int] | Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(pieces, Mapping):
        return {"parts": _parts(layer, pieces), "repeats": 1}
    if set(pieces) != {"parts", "repeats"}:
        raise ValueError(f"split: expected parts and repeats for {layer.name!r}; got {', '.join(map(str, pieces))}")
    parts, repeats = _parts(layer, pieces["parts"]), check_at_least(pieces["repeats"], 1, "split: repeats")
    if any(part % repeats for part in parts) or (layer.groups > 1 and repeats > 1):
        raise ValueError(
            f"split: expected repeats that divide each of {parts}, in a layer without groups, for {layer.name!r}; "
            f"got {repeats}"
        )
    return {"parts": parts, "repeats": repeats}


def _parts(layer: Layer, pieces: int | Sequence[int]) -> tuple[int, ...]:
    out, sizes = sum(layer.parts), [pieces] if isinstance(pieces, int) else pieces
    if not isinstance(sizes, Sequence) or any(isinstance(each, bool) or not isinstance(each, int) for each in sizes):
        raise TypeError(f"split: expected an integer or a sequence of integers for {layer.name!r}; got {pieces!r}")
    if isinstance(pieces, int) and pieces > 0 and out % pieces == 0:
        return (out // pieces,) * pieces
    if not isinstance(pieces, int) and sum(pieces) == out and min(pieces) > 0:
        return tuple(pieces)
    raise ValueError(
        f"split: expected a divisor or a partition of {out}, the outputs of {layer.name!r}; got {pieces!r}"
    )
