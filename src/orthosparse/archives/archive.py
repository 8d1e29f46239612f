"""save_compact and load_compact: a sparse model in a file of the size of its active weights."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from orthosparse.archives.container import from_bytes, to_bytes
from orthosparse.archives.packing import Packing, is_masked_by, pack, unpack
from orthosparse.checks import check_flag, check_model, check_path, check_storable
from orthosparse.files import write_atomically
from orthosparse.layers import unwrapped
from orthosparse.masking import load_sparse
from orthosparse.modules.compact_module import Compact

_FORMAT = 1
_PLACES = ".places"  # ends the second name of a packed tensor; no tensor has such a name beside another's
_Shapes = dict[str, tuple[int, ...] | None]
_ENTRY = 200  # bytes that a header takes, about, to say how a tensor was packed


def save_compact(model: nn.Module, path: str | PathLike[str]) -> None:
    """Write the parameters and buffers of a sparse model to a safetensors file of the size of its active weights.

    Of each tensor that has a mask, or that is zero in most places, the file holds the active entries and a code of
    their places, a few bits for each; of tied tensors one; of others all. Masked layers and modules that hold only
    active weights give the same file. It is there as a whole or not at all, whatever stops the call.

    Raises:
        TypeError: an argument of a wrong type, or something in the model's state dict that is no dense tensor.
        ValueError: tensors without memory, or sharded ones.
        OSError: the file cannot be written.

    Example:
        >>> import orthosparse, tempfile
        >>> model, other = nn.Sequential(nn.Linear(64, 64)), nn.Sequential(nn.Linear(64, 64))
        >>> _ = orthosparse.sparsify(model, 0.1, generator=torch.Generator().manual_seed(0))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_compact(model, f"{folder}/model.safetensors")
        ...     load_compact(f"{folder}/model.safetensors", other)
        >>> torch.equal(model[0].weight, other[0].weight)
        True
    """
    model, path = unwrapped(check_model(model)), check_path(path)
    state, modules = _state_of(model)
    tensors: dict[str, Tensor] = {}
    packed: dict[str, Any] = {}
    tied: dict[str, str] = {}
    first: dict[Any, str] = {}
    for key, tensor, mask in _with_masks(state):
        memory = tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), mask is None
        if tensor.numel() and (known := first.setdefault(memory, key)) != key:
            tied[key] = known
            continue
        packing, values, places = pack(tensor.cpu(), None if mask is None else mask.cpu())
        if mask is None and values.nbytes + places.nbytes + _ENTRY >= tensor.nbytes:
            tensors[key] = tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)
        else:
            tensors[key], tensors[key + _PLACES], packed[key] = values, places, vars(packing)
    description = {"format": _FORMAT, "made_by": _versions(), "packed": packed, "tied": tied, "modules": modules}
    write_atomically(path, to_bytes(tensors, description))


def load_compact(path: str | PathLike[str], model: nn.Module, *, assign: bool = False) -> None:
    """Load a file that `save_compact` wrote into a model of the same architecture, as `load_sparse` does.

    Layers that have no mask get one; masked layers, and modules that hold as many active weights, take the new ones.
    The file holds no code, and nothing in it is executed.

    Args:
        assign: as for ``load_state_dict``; needed by a model on the meta device.

    Raises:
        TypeError: an argument of a wrong type.
        ValueError: a file that is damaged or not one of `save_compact`, or that does not fit the model, which is
            unchanged.
        OSError: the file cannot be read.
    """
    path, model = check_path(path), unwrapped(check_model(model))
    check_flag(assign, "assign")
    data = path.read_bytes()
    try:
        tensors, description = from_bytes(data)
        state = _unpacked(tensors, description, _shapes_of(model))
        load_sparse(model, state, assign=assign)
    except torch.OutOfMemoryError:  # a RuntimeError
        raise
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"path: {path} cannot be loaded into this model: {error}") from error


def _state_of(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Return the state dict with masked layers for modules of active weights, and the versions of all modules."""
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
    return state, {name: local["version"] for name, local in metadata.items() if "version" in local}


def _with_masks(state: dict[str, Tensor]) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    """Yield each tensor with its mask, if it has one."""
    masks = {f"{key}_mask" for key, tensor in state.items() if is_masked_by(tensor, state.get(f"{key}_mask"))}
    for key, tensor in state.items():
        if key not in masks:
            yield key, tensor, state[f"{key}_mask"] if f"{key}_mask" in masks else None


def _shapes_of(model: nn.Module) -> _Shapes:
    """Return the shape of each tensor of a model by its name in a file; None where it has none yet."""
    tensors = {key: value for key, value in model.state_dict().items() if isinstance(value, Tensor)}
    shapes = {key: None if is_lazy(value) else tuple(value.shape) for key, value in tensors.items()}
    return shapes | {f"{prefix}weight": module.weight_shape for prefix, module in _compact(model)}


def _compact(model: nn.Module) -> Iterator[tuple[str, Compact]]:
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, Compact):
            yield f"{name}." if name else "", module


def _unpacked(tensors: dict[str, Tensor], description: dict[str, Any], shapes: _Shapes) -> "_State":
    """Return the state dict that a file was made of.

    Raises:
        ValueError: it was forged, or is that of a model of other shapes.
    """
    if description.get("format") != _FORMAT:
        raise ValueError(f"expected format {_FORMAT}; got {description.get('format')}, of another version")
    try:
        state = _State(tensors)
        state._metadata = {name: {"version": number} for name, number in description["modules"].items()}
        for key, entry in description["packed"].items():
            packing = Packing(**{**entry, "shape": tuple(entry["shape"])})
            if key not in shapes:
                raise ValueError(f"expected tensors of the model; got {key!r}, which it does not have")
            if shapes[key] not in (packing.shape, None):  # before memory is taken for it
                raise ValueError(f"expected shape {shapes[key]} for {key!r}; got {packing.shape}")
            state[key], mask = unpack(packing, state[key], state.pop(key + _PLACES))
            if packing.masked:
                state[f"{key}_mask"] = mask
        for key, known in description["tied"].items():
            state[key] = state[known]
            if f"{known}_mask" in state:
                state[f"{key}_mask"] = state[f"{known}_mask"]
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"expected a description of tensors in it ({error!r})") from error
    return state


def _versions() -> dict[str, str]:
    try:
        own = version("orthosparse")
    except PackageNotFoundError:  # sources that are not installed
        own = "unknown"
    return {"orthosparse": own, "torch": torch.__version__}


class _State(dict[str, Tensor]):
    """A state dict, which carries versions of modules."""

    _metadata: dict[str, Any]
