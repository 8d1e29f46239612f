"""What a file holds of a model: tensors, packed where that is smaller, and a description of them in plain values."""

from collections.abc import Iterator, Mapping
from dataclasses import astuple
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from orthosparse.archives.packing import Packing, Rows, is_masked_by, pack, pack_rows, unpack, unpack_rows
from orthosparse.modules.compact_module import Compact
from orthosparse.state_checks import check_storable

_FORMAT = 1
_CODES = "__places__"  # the name of the tensor in the file: the codes of all packed tensors, one after the other
_ENTRY = 60  # about how many bytes the description of a packed tensor takes in the header


class State(dict[str, Tensor]):
    """A state dict, which carries the versions of modules."""

    _metadata: Mapping[str, Any]


def contents_of(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a file and their description.

    Raises:
        TypeError, ValueError: something in the model's state dict that cannot be stored.
    """
    state, versions = _state_of(model)
    tensors: dict[str, Tensor] = {}
    packed: dict[str, Any] = {}
    rows, codes = _take_rows(state)
    tied: dict[str, str] = {}
    first: dict[Any, str] = {}  # the first name of each tensor in memory
    for key, tensor, mask in _with_masks(state):
        identity = tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), mask is None
        if tensor.numel() and (known := first.setdefault(identity, key)) != key:
            tied[key] = known
            continue
        packing, values, code = pack(tensor.cpu(), None if mask is None else mask.cpu())
        if mask is None and values.nbytes + code.nbytes + _ENTRY >= tensor.nbytes:
            tensors[key] = tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)
        else:
            tensors[key], packed[key] = values, astuple(packing)
            codes.append(code)
    tensors[_CODES] = torch.cat(codes)
    made_by = {"orthosparse": _own_version(), "torch": torch.__version__}
    tables = {"rows": rows, "packed": packed, "tied": tied, "versions": versions}
    return tensors, {"format": _FORMAT, "made_by": made_by, **tables}


def state_in(tensors: Mapping[str, Tensor], description: Mapping[str, Any], model: nn.Module) -> State:
    """Return the state dict that the contents of a file were made of.

    Raises:
        ValueError: they were forged, or are those of a model of other shapes.
    """
    if description.get("format") != _FORMAT:
        raise ValueError(f"expected format {_FORMAT}; got {description.get('format')}, of another version")
    try:
        return _unpacked(tensors, description, model)
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"expected a description of its tensors ({error!r})") from error


def _unpacked(tensors: Mapping[str, Tensor], description: Mapping[str, Any], model: nn.Module) -> State:
    shapes = _shapes_of(model)
    if "n_averaged" in tensors and "n_averaged" not in shapes:
        tensors, description = _without_average(tensors, description)
    state = State(tensors)
    packed = {key: Packing(tuple(shape), *fields) for key, (shape, *fields) in description["packed"].items()}
    rows = {prefix: Rows(*sizes) for prefix, sizes in description["rows"].items()}
    lengths = [*(sizes.code_bytes for sizes in rows.values()), *(packing.code_bytes for packing in packed.values())]
    codes = iter(state.pop(_CODES).split(lengths))
    for (prefix, sizes), code in zip(rows.items(), codes, strict=False):
        if (shapes.get(f"{prefix}row_starts"), shapes.get(f"{prefix}columns")) != ((sizes.rows + 1,), (sizes.entries,)):
            raise ValueError(f"expected the tables of {prefix}values as the model has them; got {sizes}")
        state[f"{prefix}row_starts"], state[f"{prefix}columns"] = unpack_rows(sizes, code)
    for (key, packing), code in zip(packed.items(), codes, strict=True):
        if key not in shapes:
            raise ValueError(f"expected tensors of the model; got {key!r}, which it does not have")
        if shapes[key] not in (packing.shape, None):  # before memory is allocated
            raise ValueError(f"expected shape {shapes[key]} for {key!r}; got {packing.shape}")
        state[key], mask = unpack(packing, state[key], code)
        if packing.masked:
            state[f"{key}_mask"] = mask
    for key, known in description["tied"].items():
        state[key] = state[known]
        if f"{known}_mask" in state:
            state[f"{key}_mask"] = state[f"{known}_mask"]
    versions = dict.fromkeys(dict(model.named_modules()), 1) | description["versions"]
    state._metadata = {name: {"version": number} for name, number in versions.items()}
    return state


def _without_average(
    tensors: Mapping[str, Tensor], description: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return contents by the names of the model whose moving average torch's AveragedModel holds."""
    plain = {key.removeprefix("module."): tensor for key, tensor in tensors.items() if key != "n_averaged"}
    tables = {
        table: {key.removeprefix("module."): value for key, value in description[table].items()}
        for table in ("rows", "packed", "tied", "versions")
    }
    tables["tied"] = {key: known.removeprefix("module.") for key, known in tables["tied"].items()}
    return plain, {**description, **tables}


def _state_of(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Return the state dict, with masked layers for modules of active weights, and all versions that are not 1."""
    state = model.state_dict()
    metadata = getattr(state, "_metadata", {})
    forms: dict[Compact, dict[str, Tensor]] = {}  # a shared module has one
    for prefix, module in _compact(model):
        if module not in forms:
            forms[module] = {"weight": module.weight.detach(), "weight_mask": module.weight_mask}
        for key in ("values", "row_starts", "columns"):
            del state[prefix + key]
        state.update({prefix + key: value for key, value in forms[module].items()})
    for key, value in state.items():
        check_storable(key, value)
    return state, {name: local["version"] for name, local in metadata.items() if local.get("version", 1) != 1}


def _take_rows(state: dict[str, Tensor]) -> tuple[dict[str, Any], list[Tensor]]:
    """Take the tables of layers for inference out of a state dict; return how they are packed, and their codes."""
    rows, codes = {}, [torch.empty(0, dtype=torch.uint8, device="cpu")]
    for prefix in [key.removesuffix("values") for key in state if key.rpartition(".")[2] == "values"]:
        names = f"{prefix}row_starts", f"{prefix}columns"
        if all(name in state for name in names) and (found := pack_rows(*(state[name] for name in names))):
            rows[prefix] = astuple(found[0])
            codes.append(found[1])
            for name in names:
                del state[name]
    return rows, codes


def _with_masks(state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    """Yield each tensor with its mask, if it has one."""
    masks = {f"{key}_mask" for key, tensor in state.items() if is_masked_by(tensor, state.get(f"{key}_mask"))}
    for key, tensor in state.items():
        if key not in masks:
            yield key, tensor, state[f"{key}_mask"] if f"{key}_mask" in masks else None


def _shapes_of(model: nn.Module) -> dict[str, tuple[int, ...] | None]:
    """Return the shape of each tensor of a model by its name in a file; None where it has none yet."""
    tensors = {key: value for key, value in model.state_dict().items() if isinstance(value, Tensor)}
    shapes = {key: None if is_lazy(value) else tuple(value.shape) for key, value in tensors.items()}
    return shapes | {f"{prefix}weight": module.weight_shape for prefix, module in _compact(model)}


def _compact(model: nn.Module) -> Iterator[tuple[str, Compact]]:
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, Compact):
            yield f"{name}." if name else "", module


def _own_version() -> str:
    try:
        return version("orthosparse")
    except PackageNotFoundError:
        return "not installed"
