"""A network as files that other programs load: the deployed one as a program, the trained one small and as ONNX."""

import copy
import io
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import orthosparse
from orthosparse.files import write_atomically

_PROGRAM, _ONNX, _WEIGHTS = "deployed.pt2", "model.onnx", "model.safetensors"
PURPOSES = {
    _PROGRAM: "the deployed network, for torch.export.load (import orthosparse.operators first)",
    _WEIGHTS: "the trained weights and masks, for orthosparse.load_compact, and to deploy on another machine",
    _ONNX: "the trained network with zeros in its weights: runs everywhere, no faster for zeros",
}


@dataclass(frozen=True, eq=False)
class Shipment:
    """What is to be written: the trained network, and the contents of files by their names.

    Attributes:
        table: that deploy returned.
    """

    network: nn.Module
    table: Any
    files: dict[str, bytes]


def ship(
    network: nn.Module,
    example: Tensor,
    *,
    onnx: bool = False,
    **options: Any,
) -> Shipment:
    """Deploy a network and export it; nothing is written.

    Args:
        onnx: whether to make an ONNX model too.
        options: of `orthosparse.deploy`.

    Raises:
        ImportError: the extra onnx is asked for and not installed.
    """
    for name in ("onnx", "onnxscript") if onnx else ():
        import_module(name)  # raises before minutes are spent
    deployed, table = orthosparse.deploy(network, example, **options)
    files = {_PROGRAM: _program(deployed, example.to(options.get("device")))}
    if onnx:
        files[_ONNX] = _onnx(network, example)
    return Shipment(network, table, files)


def write(shipment: Shipment, folder: Path) -> dict[str, int]:
    """Write the files, each as a whole or not at all, to a folder, made if needed; return their sizes by name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in shipment.files.items():
        write_atomically(folder / name, data)
    orthosparse.save_compact(shipment.network, folder / _WEIGHTS)
    return {name: (folder / name).stat().st_size for name in (*shipment.files, _WEIGHTS)}


def _program(deployed: nn.Module, example: Tensor) -> bytes:
    program, file = torch.export.export(copy.deepcopy(deployed), (example,)), io.BytesIO()  # a copy is not compiled
    torch.export.save(program, file)
    return file.getvalue()


def _onnx(network: nn.Module, example: Tensor) -> bytes:
    plain = copy.deepcopy(network).eval()
    orthosparse.bake(plain)  # no runtime has layers of active weights
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # torch 2.13 says so of its own exporter
        program = torch.onnx.export(plain, (example,), verbose=False)
    assert program is not None, "it is None for a path alone"
    return bytes(program.model_proto.SerializeToString())
