"""Our GPU kernels against torch's own operations: by Triton's interpreter here, as compiled where there is a GPU."""

import importlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from interpreter import check_interpreted, needs_interpreter, needs_triton
from lab.training.stacked.hopper import SHARED, Launch
from lab.training.stacked.interpreted import check
from orthosparse.lab.models.stages import Grid, Stage
from orthosparse.lab.training.devices import arithmetic
from orthosparse.lab.training.stacked import fused, launches
from orthosparse.lab.training.stacked.chain import LayerRun
from orthosparse.lab.training.stacked.slab import Slab

CPU = torch.device("cpu")


@needs_interpreter
def test_by_the_interpreter_the_kernels_compute_what_torch_computes():
    check_interpreted(Path(__file__).with_name("interpreted.py"), 17)


MAPS = {"HEIGHT": 8, "WIDTH": 8, "KERNEL": 3, "CHANNELS": 128, "PRECISION": "tf32"}
ONE = {"HEIGHT": 1, "WIDTH": 1, "KERNEL": 1, "CHANNELS": 128, "PRECISION": "tf32"}
NUMBERS = {"weight_decay": "fp32", "momentum_factor": "fp32"}
POINTERS = {
    **dict.fromkeys(["lr_ptr", "value_ptr", "gradient_ptr", "momentum_ptr", "rounded_ptr"], "fp32"),
    **dict.fromkeys(["weight_grad_ptr", "bias_grad_ptr", "square_ptr"], "fp32"),
    **dict.fromkeys(["off_ptr", "active_ptr", "stopped_ptr"], "u8"),
}


def launch(name, dtype, warps, **constants):
    """Return a launch whose pointers are to numbers of `dtype`, but for some that never are."""
    kernel = getattr(importlib.import_module("orthosparse.lab.training.stacked.chain_kernels"), name)
    kinds = {
        argument: f"*{POINTERS.get(argument, dtype)}" if argument.endswith("_ptr") else NUMBERS.get(argument, "i32")
        for argument in kernel.arg_names
    }
    options = {"num_warps": warps, **launches.FUSION}
    options |= {"maxnreg": launches._REGISTERS} if name == "weight_grad" else {}
    return Launch(kernel, kinds, constants, options)


def everything():
    """Yield all that is launched on the paper's networks, in the sizes that are chosen there."""
    for rows, warps, stages in (launches._LINEAR, launches._LINEAR_BACKWARD, launches._LINEAR_FEW):
        sizes = {"BLOCK_ROWS": rows, "STAGES": stages, "WIDTH": 128, "PRECISION": "tf32"}
        for keep in (False, True):
            yield "chain_forward", "fp32", warps, {"KEEP": keep, **sizes}
        yield "chain_backward", "fp32", warps, sizes if rows <= 32 else {**sizes, "BLOCK_ROWS": 32, "STAGES": 2}
    for width, dtype in ((2, "bf16"), (4, "fp32")):
        for rows, outputs, inputs, warps, stages in (launches._CONVOLVE[width], launches._CONVOLVE_FEW[width]):
            sizes = {"BLOCK_ROWS": rows, "BLOCK_OUT": outputs, "BLOCK_IN": inputs, "STAGES": stages, **MAPS}
            for backward in (False, True):
                yield "convolve", dtype, warps, {"BACKWARD": backward, "ACTIVATED": True, **sizes}
        rows, warps, stages = launches._WEIGHT_GRAD[width]
        yield "weight_grad", dtype, warps, {"TRANSPOSED": False, "BLOCK_ROWS": rows, "STAGES": stages, **MAPS}
    rows, warps, stages = launches._WEIGHT_GRAD_TRANSPOSED
    yield "weight_grad", "fp32", warps, {"TRANSPOSED": True, "BLOCK_ROWS": rows, "STAGES": stages, **ONE}
    block, warps = launches._SGD
    for masked in (False, True):
        yield (
            "sgd_step",
            "fp32",
            warps,
            {"NESTEROV": True, "ROUNDED": masked, "MASKED": masked, "GROUP": launches._GROUP, "BLOCK": block},
        )


@needs_triton
def test_all_that_is_launched_compiles_and_fits_into_a_multiprocessor(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for name, dtype, warps, constants in everything():
        assert launch(name, dtype, warps, **constants).compiled().metadata.shared <= SHARED, (name, constants)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["linear", "convolution"])
def test_on_a_gpu_the_compiled_kernels_compute_what_torch_computes(name, dtype, generator):
    grid = Grid(8, 8, 3, 1) if name == "convolution" else None
    stage = Stage(tuple(f"layer{index}" for index in range(60)), 128, 128, grid, activation="tanh")
    tolerance, precision = (2e-5, "fp32") if dtype == torch.float32 else (0.1, "bf16")
    with arithmetic(precision):
        check(stage, 100, generator, device=torch.device("cuda"), dtype=dtype, tolerance=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("grid", [None, Grid(4, 4, 3, 1)])
def test_on_a_gpu_a_signal_keeps_its_size_in_tf32(grid, generator):
    layers, width = 400, 128
    stage = Stage(tuple(f"layer{index}" for index in range(layers)), width, width, grid, activation="tanh")
    slab = Slab(stage, 2, torch.float32, torch.device("cuda"))
    rotations = torch.linalg.qr(torch.randn(layers, 2, width, width, generator=generator)).Q
    centre = slice(4 * width, 5 * width) if grid is not None else slice(None)
    slab.weight.value[..., centre] = rotations.cuda()
    x = 1e-3 * torch.randn(2, 100, stage.features[0], generator=generator).cuda()  # so small that tanh is the identity
    with arithmetic("tf32"):
        y = fused.run_of(slab, torch.float32, True).infer(x)
    # Bits that are dropped instead of rounded would leave three quarters.
    assert float(y.norm() / x.norm()) == pytest.approx(1, abs=5e-3)


def test_layers_that_do_not_fit_are_left_to_torch():
    fitting = Stage(("a", "b"), 64, 64, activation="tanh")
    assert fused.fits(fitting, torch.float32)
    assert not fused.fits(fitting, torch.float64)
    for change in ({"inputs": 60, "outputs": 60}, {"inputs": 32}, {"activation": "relu"}, {"grid": Grid(8, 8, 3, 2)}):
        assert not fused.fits(SimpleNamespace(**{**vars(fitting), **change}), torch.float32)


@pytest.mark.parametrize(
    ("grid", "dtype", "asked", "kind"),
    [
        (None, torch.float32, None, fused.FusedLinear),
        (Grid(4, 4, 3, 1), torch.bfloat16, None, fused.FusedCircular),
        (Grid(4, 4, 3, 1), torch.float32, None, LayerRun),  # torch's own are faster there
        (Grid(4, 4, 3, 1), torch.float32, True, fused.FusedCircular),
    ],
)
def test_by_default_the_faster_kernels_are_taken(monkeypatch, grid, dtype, asked, kind):
    monkeypatch.setattr(fused, "chosen", lambda fused, device: True)
    slab = Slab(Stage(("a", "b"), 16, 16, grid, activation="tanh"), 1, torch.float32, CPU)
    assert type(fused.run_of(slab, dtype, asked)) is kind


def test_the_deepest_network_has_kernels_in_cuda_where_there_are_any(monkeypatch):
    monkeypatch.setattr(fused, "chosen", lambda fused, device: True)
    slab = Slab(Stage(("a", "b"), 128, 128, Grid(8, 8, 3, 1), activation="tanh"), 1, torch.float32, CPU)
    assert type(fused.run_of(slab, torch.bfloat16, None)) is fused.FusedCircular
    monkeypatch.setattr(fused.circular_launches, "kernels_for", lambda device: object())
    assert type(fused.run_of(slab, torch.bfloat16, None)) is fused.CircularRun
    assert type(fused.run_of(slab, torch.float32, True)) is fused.FusedCircular


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a GPU where there is none")
def test_the_kernels_are_refused_where_they_cannot_run():
    assert os.environ.get("TRITON_INTERPRET") != "1"
    assert not fused.chosen(None, CPU)
    with pytest.raises(ValueError, match="fused: expected Triton and a GPU; got cpu"):
        fused.chosen(True, CPU)
