"""Our CUDA kernels built for a CPU, by a header that does there what theirs has a GPU do."""

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from orthosparse.lab.training.stacked import cuda_launches

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to build the kernels for a CPU")
_SOURCES = Path(cuda_launches.__file__).parent / "cuda"


@cache
def emulated(activation):
    """Return the kernels for networks of an activation."""
    with tempfile.TemporaryDirectory() as folder:
        out, headers = Path(folder) / "emulated.so", Path(__file__).with_name("emulated")
        flags = ["-std=c++17", "-O1", "-w", "-fPIC", "-shared", f"-DACTIVATION={activation}"]
        found = [f"-I{headers}", f"-I{_SOURCES}"]  # in this order: of two headers of one name the first is taken
        source = ["-x", "c++", str(_SOURCES / "convolutions.cu"), "-o", str(out)]
        subprocess.run(["g++", *flags, *found, *source], check=True)
        return cuda_launches.loaded(out)
