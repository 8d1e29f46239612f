"""Runs tests by Triton's interpreter, without a GPU, in a separate process."""

import importlib.util
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

_TRITON = tuple(int(part) for part in version("triton").split(".")[:2]) if importlib.util.find_spec("triton") else (0,)
needs_interpreter = pytest.mark.skipif(
    _TRITON < (3, 7), reason="Triton is not installed, or its interpreter cannot count with NumPy 2.4"
)


def check_interpreted(name, passed):
    """Run the tests of a file in this folder, and check that all pass, and how many."""
    # In a separate process, as Triton chooses the interpreter when it is imported.
    path = Path(__file__).with_name(name)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(path)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout
