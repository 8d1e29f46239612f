"""Our CUDA kernels for the convolutions of residual networks: built by nvcc where there is one, loaded and launched."""

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Stage
from orthosparse.lab.training.stacked.maps import Samples

_SOURCES = Path(__file__).parent / "cuda"
_CHANNELS = (16, 32, 64)
_SQUARE = 512  # channels times the side of a map
_FLAGS = ("-std=c++17", "-O3", "-shared", "-Xcompiler", "-fPIC", f"-I{_SOURCES}")
_log = logging.getLogger(__name__)


class _Forward(ctypes.Structure):
    _fields_ = (
        *[(name, ctypes.c_void_p) for name in ("x", "scale_shift", "weights", "out", "sums")],
        *[(name, ctypes.c_int) for name in ("images", "tiles_of_block")],
    )


class _Backward(ctypes.Structure):
    _pointers = ("v", "z", "coefficients", "x", "scale_shift", "weights", "add", "below", "out", "sums", "products")
    _fields_ = (
        *[(name, ctypes.c_void_p) for name in _pointers],
        *[(name, ctypes.c_int) for name in ("images", "tiles_of_block")],
    )


class _Plan(ctypes.Structure):
    """How a pass is shared out: images of a tile, blocks of a multiprocessor, bytes of shared memory of a block."""

    _fields_ = tuple((name, ctypes.c_int) for name in ("images", "blocks", "bytes"))


def fits(stage: Stage) -> bool:
    """Return whether the kernels compute convolutions of this shape, in bfloat16."""
    grid, channels = stage.grid, stage.inputs
    if grid is None or channels not in _CHANNELS or stage.outputs != channels:
        return False
    side = _SQUARE // channels
    return (grid.kernel, grid.stride, grid.circular, grid.height, grid.width) == (3, 1, False, side, side)


@cache
def library(device: torch.device, activation: str) -> ctypes.CDLL | None:
    """Return the kernels for networks of an activation on a GPU, built once and kept in the user's cache.

    None where nvcc is missing or fails, or nothing can be kept: this is logged.
    """
    nvcc, (major, minor) = _nvcc(), torch.cuda.get_device_capability(device)
    if nvcc is None:
        _log.info("no nvcc: convolutions are computed by kernels in Triton, and a step takes about a third longer")
        return None
    if major < 8:
        return None  # no bfloat16
    flags = (*_FLAGS, f"-arch=sm_{major}{minor}", f"-DACTIVATION={activation}")
    try:
        return loaded(_built(nvcc, flags))
    except subprocess.CalledProcessError as error:
        _log.warning("convolutions are computed by kernels in Triton, as nvcc failed: %s", error.stderr.strip())
    except OSError as error:  # a cache that cannot be written, or a library that cannot be loaded
        _log.warning("convolutions are computed by kernels in Triton, as those in CUDA could not be built: %s", error)
    return None


def loaded(path: Path) -> ctypes.CDLL:
    """Return built kernels."""
    kernels = ctypes.CDLL(str(path))
    number = ctypes.c_int
    kernels.convolve_forward.argtypes = [number, number, number, _Forward, ctypes.c_void_p]
    kernels.convolve_backward.argtypes = [number, number, number, _Backward, ctypes.c_void_p]
    kernels.plans_of.argtypes = [number, number, _Plan * 2]
    return kernels


def _nvcc() -> str | None:
    """Return the compiler, of CUDA_HOME or on the path."""
    home = os.environ.get("CUDA_HOME")
    own = Path(home) / "bin" / "nvcc" if home else None
    return str(own) if own is not None and own.exists() else shutil.which("nvcc")


def _built(nvcc: str, flags: tuple[str, ...]) -> Path:
    """Return the library, compiled where this user has not done so before."""
    sources = [path.read_bytes() for path in sorted(_SOURCES.glob("*.cu*"))]
    told = " ".join(flags).encode()
    digest = hashlib.blake2b(b"\0".join([*sources, told]), digest_size=8).hexdigest()
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orthosparse"
    path = folder / f"convolutions-{digest}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            out = Path(made) / path.name
            command = [nvcc, *flags, str(_SOURCES / "convolutions.cu"), "-o", str(out)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            out.replace(path)
    return path


class Convolutions:
    """The kernels for convolutions of so many channels.

    Attributes:
        fit: whether blocks have room on the device.

    Args:
        device: its number.
        processors: multiprocessors that blocks are shared out to.
    """

    def __init__(self, kernels: ctypes.CDLL, channels: int, device: int, processors: int) -> None:
        self._kernels, self._channels, self._processors = kernels, channels, processors
        plans = (_Plan * 2)()
        self.fit = bool(kernels.plans_of(channels, device, plans))
        self._forward, self._backward = plans

    def convolve(self, x: Samples, weights: Tensor, *, counted: bool) -> tuple[Tensor, Tensor | None]:
        """Return the convolution of samples ``[networks, rows, channels]``, and its sums by tile if `counted`."""
        z, scale_shift = _read(x)
        out, images = torch.empty_like(z), self._images(z)
        tiles, blocks, each = self._shares(images, len(z), self._forward)
        sums = self._sums(z, tiles) if counted else None
        given = _Forward(_at(z), _at(scale_shift), _at(weights), _at(out), _at(sums), images, each)
        self._launch(self._kernels.convolve_forward, blocks, given, z)
        return out, sums

    def products_shape(self, v: Tensor) -> tuple[int, int, int, int]:
        """Return the shape of the products whose sums over blocks, its second axis, are gradients of weights."""
        blocks = self._shares(self._images(v), len(v), self._backward)[1]
        return len(v), blocks, self._channels, 9 * self._channels

    def convolve_backward(
        self,
        v: Tensor,
        z: Tensor,
        coefficients: Tensor,
        x: Samples,
        weights: Tensor,
        *,
        products: Tensor,
        add: Tensor | None = None,
        below: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient before the activation that gave `x`, and its sums by tile with `below`; fill `products`.

        Args:
            v, z: the gradient after the normalisation of the convolution, and the convolution.
            coefficients: what the normalisation does to gradients.
            add: another gradient of `x`.
        """
        samples, scale_shift = _read(x)
        out, images = torch.empty_like(v), self._images(v)
        tiles, blocks, each = self._shares(images, len(v), self._backward)
        sums = self._sums(v, tiles)
        pointers = (v, z, coefficients, samples, scale_shift, weights, add, below, out, sums, products)
        given = _Backward(*map(_at, pointers), images, each)
        self._launch(self._kernels.convolve_backward, blocks, given, v)
        return out, sums

    def _images(self, x: Tensor) -> int:
        return x.shape[1] // (_SQUARE // self._channels) ** 2

    def _shares(self, images: int, networks: int, plan: _Plan) -> tuple[int, int, int]:
        """Return the tiles of a network, the blocks that share them, and the tiles of each: one wave of blocks."""
        tiles = -(-images // plan.images)
        each = -(-tiles // max(1, self._processors * plan.blocks // networks))
        return tiles, -(-tiles // each), each

    def _sums(self, x: Tensor, tiles: int) -> Tensor:
        return torch.empty(len(x), tiles, 2, self._channels, dtype=torch.float32, device=x.device)

    def _launch(self, kernel: Any, blocks: int, given: ctypes.Structure, x: Tensor) -> None:
        """Launch a kernel for all networks, on the device and the stream of the samples."""
        with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
            stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None
            problem = kernel(self._channels, len(x), blocks, given, stream)
        if problem:
            raise RuntimeError(f"CUDA error {problem} in a convolution of {self._channels} channels")


def _read(x: Samples) -> tuple[Tensor, Tensor | None]:
    """Return the samples, and what normalises them."""
    return (x, None) if isinstance(x, Tensor) else (x.z, x.scale_shift)


def _at(tensor: Tensor | None) -> int | None:
    """Return where a tensor lies."""
    assert tensor is None or tensor.is_contiguous(), "kernels read what is contiguous"
    return None if tensor is None else tensor.data_ptr()
