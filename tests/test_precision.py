import subprocess
import sys
from pathlib import Path

import pytest
import torch

from orthosparse.precision import on_float64_device, to_float64


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_tensor_stays_where_float64_is(device):
    tensor = torch.ones(3, device=device)
    assert on_float64_device(tensor) is tensor
    assert (to_float64(tensor).device, to_float64(tensor).dtype) == (tensor.device, torch.float64)


def test_the_library_works_on_a_device_without_float64():
    path = Path(__file__).parent / "without_float64.py"
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "25 passed" in done.stdout
