"""Our GPU kernels against torch's own operations: by Triton's interpreter here, as compiled where there is a GPU."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lab.training.ensemble.interpreted import check
from orthosparse.lab.training.devices import arithmetic
from orthosparse.lab.training.ensemble import fused
from orthosparse.lab.training.ensemble.stages import Grid, Stage
from orthosparse.lab.training.ensemble.ways import Ways

CPU = torch.device("cpu")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_by_the_interpreter_the_kernels_compute_what_torch_computes():
    # A process of its own: Triton decides when it is imported whether it interprets.
    own = Path(__file__).with_name("interpreted.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(own)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 passed" in done.stdout


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["linear", "convolution"])
def test_on_a_gpu_the_compiled_kernels_compute_what_torch_computes(name, dtype, generator):
    grid = Grid(8, 8, 3, 1) if name == "convolution" else None
    stage = Stage(tuple(f"layer{index}" for index in range(60)), 128, 128, grid, activation="tanh")
    tolerance, precision = (2e-5, "fp32") if dtype == torch.float32 else (0.1, "bf16")
    with arithmetic(precision):
        check(stage, 100, generator, device=torch.device("cuda"), dtype=dtype, tolerance=tolerance)


def test_layers_that_do_not_fit_are_left_to_torch():
    fitting = Stage(("a", "b"), 64, 64, activation="tanh")
    assert fused.fits(fitting, torch.float32)
    assert not fused.fits(fitting, torch.float64)
    for change in ({"inputs": 60, "outputs": 60}, {"inputs": 32}, {"activation": "relu"}, {"grid": Grid(8, 8, 3, 2)}):
        assert not fused.fits(SimpleNamespace(**{**vars(fitting), **change}), torch.float32)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a GPU where there is none")
def test_the_kernels_are_refused_where_they_cannot_run():
    assert os.environ.get("TRITON_INTERPRET") != "1"
    assert not fused.chosen(Ways(), CPU)
    with pytest.raises(ValueError, match="fused: expected Triton and a GPU; got cpu"):
        fused.chosen(Ways(fused=True), CPU)
