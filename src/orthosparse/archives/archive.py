"""save_compact and load_compact: a sparse model in a file of the size of its active weights."""

from os import PathLike

import torch
from torch import nn

from orthosparse.archives.container import from_bytes, to_bytes
from orthosparse.archives.contents import contents_of, state_in
from orthosparse.checks import check_flag, check_model, check_path
from orthosparse.files import write_atomically
from orthosparse.layers import unwrapped
from orthosparse.masking import load_sparse


def save_compact(model: nn.Module, path: str | PathLike[str]) -> None:
    """Write the parameters and buffers of a sparse model to a safetensors file of the size of its active weights.

    Of each tensor that has a mask, or that is zero in most places, the file holds the active entries and a code of
    their places, a few bits for each; of tied tensors one; of others all. Masked layers and modules that hold only
    active weights give the same file. The file at `path` is there as a whole or not at all, whatever stops the call.

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
    write_atomically(path, to_bytes(*contents_of(model)))


def load_compact(path: str | PathLike[str], model: nn.Module, *, assign: bool = False) -> None:
    """Load a file that `save_compact` wrote into a model of the same architecture, as `load_sparse` does.

    Layers that have no mask get one; masked layers, and modules that hold as many active weights, take the new ones.
    The file holds no code, and nothing in it is executed.

    Args:
        path: of the file.
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
        load_sparse(model, state_in(*from_bytes(data), model), assign=assign)
    except torch.OutOfMemoryError:  # a RuntimeError
        raise
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"path: {path} cannot be loaded into this model: {error}") from error
