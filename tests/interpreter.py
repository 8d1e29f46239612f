"""Runs tests by Triton's interpreter, without a GPU, in a separate process."""

import importlib.util
import os
import subprocess
import sys
from importlib.metadata import version

import pytest

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
# Triton 3.6, which torch 2.11 comes with, takes arrays for numbers. NumPy warns of that, and refuses it from 2.4 on.
_TAKES_ARRAYS = importlib.util.find_spec("triton") is not None and version("triton").startswith("3.6.")
_REFUSED = tuple(int(part) for part in version("numpy").split(".")[:2]) >= (2, 4)


def needs_interpreter(test):
    """Skip a test where Triton is not installed, or its interpreter cannot count with this NumPy."""
    refused = pytest.mark.skipif(_TAKES_ARRAYS and _REFUSED, reason="Triton 3.6 cannot count with NumPy 2.4")
    return needs_triton(refused(test))


def check_interpreted(path, passed):
    """Run the tests of a file, and check that all pass, and how many."""
    # In a separate process, as Triton chooses the interpreter when it is imported.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(path)]
    command += ["-W", "ignore:Conversion of an array:DeprecationWarning"] if _TAKES_ARRAYS else []
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout
