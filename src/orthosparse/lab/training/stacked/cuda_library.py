"""Libraries of our CUDA kernels: built by nvcc where it is installed, cached for the user, loaded and launched."""

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SOURCES = Path(__file__).parent / "cuda"
_FLAGS = ("-std=c++17", "-O3", "-shared", "-Xcompiler", "-fPIC", f"-I{SOURCES}")
_log = logging.getLogger(__name__)


def library(source: str, architecture: str, activation: str) -> ctypes.CDLL | None:
    """Return the kernels of a source for networks of an activation, built once and kept in the user's cache.

    None where nvcc is missing or fails, or the cache cannot be written: this is logged.

    Args:
        architecture: of the GPU, such as ``"90"``.
    """
    nvcc = _nvcc()
    if nvcc is None:
        _log.info("no nvcc: convolutions are computed by kernels in Triton, and steps take longer")
        return None
    target = f"arch=compute_{architecture},code=sm_{architecture}"
    try:
        return ctypes.CDLL(str(_built(nvcc, source, (*_FLAGS, "-gencode", target, f"-DACTIVATION={activation}"))))
    except subprocess.CalledProcessError as error:
        _log.warning("convolutions are computed by kernels in Triton, as nvcc failed: %s", error.stderr.strip())
    except OSError as error:  # a cache that cannot be written, or a library that cannot be loaded
        _log.warning("convolutions are computed by kernels in Triton, as those in CUDA could not be built: %s", error)
    return None


def _nvcc() -> str | None:
    """Return the path of the compiler: that of CUDA_HOME, or the one on PATH."""
    home = os.environ.get("CUDA_HOME")
    in_home = Path(home) / "bin" / "nvcc" if home else None
    return str(in_home) if in_home is not None and in_home.exists() else shutil.which("nvcc")


def _built(nvcc: str, source: str, flags: tuple[str, ...]) -> Path:
    """Return the path of the library, compiled unless it is in the user's cache."""
    sources = [path.read_bytes() for path in sorted(SOURCES.glob("*.cu*"))]
    options = " ".join((source, *flags)).encode()
    digest = hashlib.blake2b(b"\0".join([*sources, options]), digest_size=8).hexdigest()
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orthosparse"
    path = folder / f"{Path(source).stem}-{digest}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            out = Path(temporary) / path.name
            command = [nvcc, *flags, str(SOURCES / source), "-o", str(out)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            out.replace(path)
    return path


def launch(kernel: Any, x: Tensor, *arguments: Any) -> None:
    """Launch a kernel on the device and the stream of a tensor.

    Raises:
        RuntimeError: CUDA reports an error.
    """
    with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
        stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None
        error = kernel(*arguments, stream)
    if error:
        raise RuntimeError(f"CUDA error {error} in a kernel of ours for tensors of shape {list(x.shape)}")


def address(tensor: Tensor | None) -> int | None:
    """Return the address of a contiguous tensor; None for None."""
    assert tensor is None or tensor.is_contiguous(), "kernels read contiguous tensors"
    return None if tensor is None else tensor.data_ptr()


def params_fields(pointers: str, integers: str) -> tuple[tuple[str, type], ...]:
    """Return the fields of the parameters of a kernel: names of pointers, followed by names of integers."""
    fields = [(name, ctypes.c_void_p) for name in pointers.split()]
    return (*fields, *[(name, ctypes.c_int) for name in integers.split()])
