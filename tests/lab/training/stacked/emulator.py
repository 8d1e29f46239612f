"""Our CUDA kernels built for a CPU, by headers that emulate the GPU's instructions."""

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from orthosparse.lab.training.stacked import circular_launches, cuda_launches, cuda_library

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to build the kernels for a CPU")


@cache
def emulated(activation):
    """Return the kernels for residual networks of an activation."""
    return cuda_launches.declared(_built("convolutions.cu", activation))


@cache
def emulated_circular():
    """Return the kernels for runs of circular convolutions."""
    return circular_launches.CircularKernels(_built("circular.cu", "tanh"))


def _built(source, activation):
    with tempfile.TemporaryDirectory() as folder:
        out, headers = Path(folder) / "emulated.so", Path(__file__).with_name("emulated")
        flags = ["-std=c++17", "-O2", "-w", "-fPIC", "-shared", f"-DACTIVATION={activation}"]
        includes = [
            f"-I{headers}",
            f"-I{cuda_library.SOURCES}",
        ]  # of two headers of the same name, the first one is used
        subprocess.run(["g++", *flags, *includes, "-x", "c++", cuda_library.SOURCES / source, "-o", out], check=True)
        return ctypes.CDLL(str(out))


def error(mine, theirs):
    """Return the norm of the difference, relative to that of the whole."""
    return float((mine.double() - theirs.double()).norm() / theirs.double().norm())
