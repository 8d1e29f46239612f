"""Our CUDA kernels for runs of circular convolutions: built for a CPU everywhere, and by nvcc for a Hopper GPU."""

import pytest
import torch

from lab.training.stacked.emulator import emulated_circular, error, needs_compiler
from lab.training.stacked.interpreted import passed, slab_of
from orthosparse.lab.models.stages import Grid, Stage
from orthosparse.lab.training.stacked import circular_launches
from orthosparse.lab.training.stacked.chain import LayerRun
from orthosparse.lab.training.stacked.circular_launches import fits, grouped, ungrouped
from orthosparse.lab.training.stacked.circular_run import CircularRun
from orthosparse.lab.training.stacked.slab import Slab

CPU = torch.device("cpu")


def stage_of(layers, **changes):
    given = {"inputs": 128, "outputs": 128, "grid": Grid(8, 8, 3, 1), "activation": "tanh", **changes}
    return Stage(tuple(f"layer{index}" for index in range(layers)), **given)


def check(kernels, slab, images, generator, tolerance):
    """Compare with torch's operations in float32 on weights that are rounded as the kernels round them."""
    device = slab.weight.value.device
    shape = (slab.weight.value.shape[1], images, 64 * 128)
    x, grad = (torch.randn(shape, generator=generator).bfloat16().to(device) for _ in range(2))
    slab.weight.value.copy_(slab.weight.value.bfloat16())
    for first in (False, True):
        mine = passed(CircularRun(slab, torch.bfloat16, kernels), x, grad, first=first)
        theirs = passed(LayerRun(slab, torch.float32), x.float(), grad.float(), first=first)
        for found, expected in zip(mine, theirs, strict=True):
            assert error(found, expected) < tolerance


@needs_compiler
@pytest.mark.parametrize(("layers", "networks", "images"), [(1, 1, 1), (3, 2, 3), (2, 1, 8)])
def test_the_kernels_compute_what_torch_computes(layers, networks, images, generator):
    # A rounding to bfloat16 a layer, of 2**-9 / sqrt(3) on average, adds up forward and backward.
    check(emulated_circular(), slab_of(stage_of(layers), generator, networks), images, generator, 6e-3)


@needs_compiler
def test_chunks_of_layers_give_what_they_give_at_once(generator, monkeypatch):
    slab = slab_of(stage_of(3), generator, 1)
    x, grad = (torch.randn(1, 2, 64 * 128, generator=generator).bfloat16() for _ in range(2))
    found = []
    for chunk in (44, 2):
        monkeypatch.setattr(CircularRun, "chunk", chunk)
        found.append(passed(CircularRun(slab, torch.bfloat16, emulated_circular()), x, grad, first=False))
    # The gradient between two chunks is rounded once more, before the derivative of its activation.
    for whole, parts in zip(*found, strict=True):
        assert error(parts, whole) < 6e-3


@needs_compiler
def test_the_bits_of_a_network_do_not_depend_on_the_others(generator):
    slab = slab_of(stage_of(2), generator, 2)
    x, grad = (torch.randn(2, 3, 64 * 128, generator=generator).bfloat16() for _ in range(2))
    alone = Slab(stage_of(2), 1, torch.float32, CPU)
    for mine, theirs in zip(alone.leaves, slab.leaves, strict=True):
        mine.value.copy_(theirs.value[:, 1:])
    alone.weight.off.copy_(slab.weight.off[:, 1:])
    whole = passed(CircularRun(slab, torch.bfloat16, emulated_circular()), x, grad, first=False)
    one = passed(CircularRun(alone, torch.bfloat16, emulated_circular()), x[1:], grad[1:], first=False)
    for found, both in zip(one[:3], whole[:3], strict=True):  # samples
        assert torch.equal(found, both[1:])
    for found, both in zip(one[3:], whole[3:], strict=True):  # gradients and their norms, layer by layer
        assert torch.equal(found, both[:, 1:])


@needs_compiler
def test_what_is_not_finite_stays_so(generator):
    slab = slab_of(stage_of(2), generator, 1)
    x = torch.randn(1, 2, 64 * 128, generator=generator).bfloat16()
    x[0, 0, 5] = torch.nan
    run = CircularRun(slab, torch.bfloat16, emulated_circular())
    output, saved = run.forward(x)
    assert output[0, 0].isnan().any()
    assert not output[0, 1].isnan().any()
    run.backward(torch.ones_like(output), saved, first=True)
    assert slab.weight.norms.isnan().all()


def test_groups_of_channels_and_rows_of_numbers_are_the_same_samples(generator):
    x = torch.randn(2, 3, 64 * 128, generator=generator)
    assert torch.equal(ungrouped(grouped(x)), x)
    pixel, channel = 19, 101
    assert grouped(x)[1, 2, channel // 8, pixel, channel % 8] == x[1, 2, pixel * 128 + channel]


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": 64, "outputs": 64},
        {"grid": Grid(16, 16, 3, 1)},
        {"grid": Grid(8, 8, 3, 2)},
        {"grid": Grid(8, 8, 3, 1, circular=False)},
        {"grid": None},
        {"activation": "relu"},
    ],
)
def test_only_the_layers_of_the_deepest_network_fit(change):
    assert fits(stage_of(2), torch.bfloat16)
    assert not fits(stage_of(2), torch.float32)
    assert not fits(stage_of(2, **change), torch.bfloat16)


def test_on_other_gpus_and_on_cpus_there_are_no_kernels(monkeypatch):
    assert circular_launches.kernels_for(CPU) is None
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert circular_launches.kernels_for.__wrapped__(torch.device("cuda", 7)) is None


@pytest.mark.gpu
@pytest.mark.parametrize(("layers", "networks", "images"), [(1, 1, 1), (3, 2, 37), (50, 1, 128)])
def test_on_a_gpu_the_kernels_compute_what_torch_computes(layers, networks, images, generator):
    device = torch.device("cuda", 0)
    kernels = circular_launches.kernels_for(device)
    if kernels is None:
        pytest.skip("no Hopper, or no nvcc")
    # Roundings of fifty layers add up as their square root.
    tolerance = 6e-3 if layers < 50 else 4e-2
    check(kernels, slab_of(stage_of(layers), generator, networks, device), images, generator, tolerance)
