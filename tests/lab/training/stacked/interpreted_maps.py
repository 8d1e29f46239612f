"""Our kernels for residual networks against torch's operations: `test_fused_maps` has Triton's interpreter run this."""

import pytest
import torch

from lab.training.stacked.emulator import emulated, needs_compiler
from lab.training.stacked.stacked import CPU, check_constant, check_same, given_to, networks_of, passed, stacked
from orthosparse.lab.models import ACTIVATIONS
from orthosparse.lab.models.stages import Grid, Norms, Stage
from orthosparse.lab.training.devices import arithmetic
from orthosparse.lab.training.stacked import map_launches
from orthosparse.lab.training.stacked.cuda_launches import Convolutions
from orthosparse.lab.training.stacked.fused_maps import FusedMaps
from orthosparse.lab.training.stacked.maps import DeferredNorm, Maps, PreviousLayer
from orthosparse.lab.training.stacked.slab import NormSlab

OURS, THEIRS = FusedMaps(torch.float32), Maps(torch.float32)


@pytest.mark.parametrize(("shape", "batch"), [((3, 8, 8), 3), ((1, 5, 7), 2)])
def test_a_network_by_our_kernels_is_that_by_torch(shape, batch, generator):
    networks = networks_of(shape, generator)
    given = given_to(shape, batch, generator)
    found = []
    with arithmetic("fp32"):
        for fused, kind in ((True, FusedMaps), (False, Maps)):
            network, slabs = stacked(networks, shape, fused, masked=True)
            assert type(network.maps) is kind
            found.append(passed(network, slabs, *given))
    check_same(*found, 1e-5)


def samples(generator, *, rows=70, width=64, count=1):
    """Return some random samples, in more rows than a program takes."""
    return [torch.randn(2, rows, width, generator=generator) for _ in range(count)]


def random_scale_shift(generator):
    return torch.randn(3, 2, 64, generator=generator)


def check_close(mine, theirs):
    """Compare to roundings, relative to the largest number."""
    torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-6 * float(theirs.abs().max()))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_of_what_is_normalised_are_those_of_torch(activation, generator):
    z, other = samples(generator, count=2)
    own, of_shortcut = random_scale_shift(generator), random_scale_shift(generator)
    for shortcut in ((), (other,), (other, of_shortcut)):
        check_close(OURS.normalise(z, own, activation, *shortcut), THEIRS.normalise(z, own, activation, *shortcut))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_before_activations_and_their_sums_are_those_of_torch(activation, generator):
    z, grad = samples(generator, count=2)
    y = THEIRS.normalise(z, random_scale_shift(generator), activation)
    previous = PreviousLayer(y, z, activation)
    (mine, by_tile), (theirs, sums) = (
        OURS.activation_backward(grad, previous),
        THEIRS.activation_backward(grad, previous),
    )
    check_close(mine, theirs)
    assert by_tile.shape == (2, 2, 2, 64)
    check_close(by_tile.sum(1), sums)
    check_close(OURS.sums(grad, z).sum(1), THEIRS.sums(grad, z))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_no_activation_hides_what_is_not_finite(activation):
    z = torch.tensor([torch.nan, torch.inf, -torch.inf, -torch.nan, 1.0, -1.0]).view(1, 6, 1).repeat(1, 1, 16)
    plain = torch.stack([torch.ones(1, 16), torch.zeros(1, 16), torch.zeros(1, 16)])
    mine, theirs = (maps.normalise(z, plain, activation) for maps in (OURS, THEIRS))
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)
    assert mine[0, :, 0].isnan().tolist() == [True, False, False, True, False, False]
    if activation == "relu":
        assert mine[0, :3, 0].tolist()[1:] == [torch.inf, 0.0]


def normed(generator, grid, inputs, outputs):
    """Return a slab of two convolutions of random weights, scales and shifts."""
    stage, norms = Stage(("a", "b"), inputs, outputs, grid), Norms(("c", "d"), 1e-5, 0.1)
    slab = NormSlab(stage, norms, 2, torch.float32, CPU)
    for leaf in slab.leaves:
        leaf.value.copy_(torch.randn(leaf.value.shape, generator=generator))
    return slab


def test_coefficients_of_normalisations_are_those_of_torch(generator):
    slab, other = (normed(generator, Grid(2, 2, 3, 1), 16, 64) for _ in range(2))
    other.scale.value.copy_(slab.scale.value)
    other.shift.value.copy_(slab.shift.value)
    z, v = samples(generator, count=2)
    found = [maps.scale_shift(own, 1, maps.sums(z, z), 70) for maps, own in ((OURS, slab), (THEIRS, other))]
    check_close(*found)
    check_close(OURS.norm_grads(slab, 1, OURS.sums(v, z), 70), THEIRS.norm_grads(other, 1, THEIRS.sums(v, z), 70))
    for name in ("batch_mean", "batch_var"):
        check_close(getattr(slab, name), getattr(other, name))
    check_close(slab.scale.gradient, other.scale.gradient)
    check_close(slab.shift.gradient, other.shift.gradient)
    assert slab.samples == other.samples == 70
    coefficients = torch.randn(4, 2, 64, generator=generator)
    check_close(OURS.norm_backward(v, z, coefficients), THEIRS.norm_backward(v, z, coefficients))


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")  # which NumPy says of infinite squares
def test_a_variance_is_never_negative_and_never_hidden(generator):
    slab = normed(generator, Grid(2, 2, 3, 1), 16, 64)
    sums = torch.zeros(2, 1, 2, 64)
    sums[:, :, 0] = 10.0
    sums[:, :, 1] = 9.99999  # by roundings, of ten ones
    sums[1, :, :, 3] = torch.nan
    sums[1, :, 0, 5], sums[1, :, 1, 5] = 1e30, torch.inf
    OURS.scale_shift(slab, 0, sums, 10)
    assert slab.batch_var[0, 0].tolist() == [0.0] * 64
    assert slab.batch_var[0, 1].isinf().nonzero().tolist() == [[5]]
    assert slab.batch_var[0, 1].isnan().nonzero().tolist() == [[3]]


def test_a_constant_channel_becomes_its_shift_and_nothing_else(generator):
    slab = normed(generator, Grid(2, 2, 3, 1), 16, 64)
    check_constant(OURS, slab, generator)


@needs_compiler
def test_layers_by_kernels_in_cuda_are_those_by_torch(generator):
    grid = Grid(8, 8, 3, 1, circular=False)
    slab = normed(generator, grid, 64, 64)
    slab.weight.value.mul_(0.06)
    below, v, add = (each.bfloat16() for each in samples(generator, rows=64, count=3))
    scale_shift, found = 1 + 0.3 * random_scale_shift(generator), []
    for maps in (FusedMaps(torch.bfloat16, {64: in_cuda(64)}), Maps(torch.bfloat16)):
        slab.weight.gradient.fill_(torch.nan)
        maps.refresh(slab)
        x = maps.conv_input(slab, below, scale_shift, "relu")
        assert isinstance(x, DeferredNorm) is isinstance(maps, FusedMaps)
        passed = []
        for layer in range(2):
            z, sums = maps.convolve(x, slab, layer, with_sums=True)
            maps.scale_shift(slab, layer, sums, 64)
            what = {"shortcut_grad": add if layer else None, "previous_z": below, "activation": "relu"}
            grad, own = maps.backward(slab, layer, v, z, maps.sums(v, z), x, **what)
            totals = own.sum(1) if own.dim() == 4 else own
            passed += [maps.convolve(x, slab, layer, with_sums=False)[0], grad, totals]
        maps.finish_weight_grads(slab)
        gradients = (leaf.gradient.clone() for leaf in (slab.weight, slab.scale, slab.shift))
        found.append([*passed, *gradients, slab.batch_mean.clone(), slab.weight.norms.clone()])
    for mine, theirs in zip(*found, strict=True):
        error = float((mine.double() - theirs.double()).norm() / theirs.double().norm())
        assert error < 0.01  # torch rounds what is normalised, and gradients, once more


def in_cuda(channels):
    """Return the kernels in CUDA, as the emulator runs them: the number of its device is how much room that has."""
    return Convolutions(emulated("relu"), channels, device=232_448, processors=1)


GRIDS = {
    "patches": (Grid(4, 6, 3, 1), 16, 16),
    "rows of patches": (Grid(2, 4, 3, 1), 64, 64),
    "odd": (Grid(3, 5, 3, 1), 16, 16),
    "strided": (Grid(4, 4, 3, 2), 16, 32),
    "one tap": (Grid(4, 2, 1, 2), 32, 64),
}


@pytest.mark.parametrize("name", GRIDS)
def test_gradients_of_weights_are_those_of_torch_in_shares_that_leave_a_rest(name, generator):
    grid, inputs, outputs = GRIDS[name]
    slab, plan = normed(generator, grid, inputs, outputs), map_launches.plan_weight_grad(grid, outputs)
    tiling, block = plan[0], plan[1].patches
    images = 1 + 4 * block // tiling.patches  # a little more than four blocks: one share has three, the other the rest
    x = torch.randn(2, images * grid.height * grid.width, inputs, generator=generator)
    grad = torch.randn(2, images * grid.out_height * grid.out_width, outputs, generator=generator)
    assert map_launches.weight_grads_shape(grad, x, plan)[1] == 2
    assert images * tiling.patches % block
    found = []
    for maps in (FusedMaps(torch.float32), Maps(torch.float32)):
        slab.weight.gradient.fill_(torch.nan)
        maps.refresh(slab)
        with arithmetic("fp32"):
            for layer in range(2):
                maps.weight_grad(slab, layer, grad, x)
            maps.finish_weight_grads(slab)
        found.append(slab.weight.gradient.clone())
    check_close(*found)


def test_weights_that_change_and_a_last_batch_that_is_shorter_are_followed(generator):
    grid, inputs, outputs = GRIDS["patches"]
    slab, found = normed(generator, grid, inputs, outputs), []
    plan = map_launches.plan_weight_grad(grid, outputs)
    given = [torch.randn(2, 2, images * 24, 16, generator=generator) for images in (50, 3)]
    shares = [map_launches.weight_grads_shape(grad, x, plan)[1] for grad, x in given]
    assert shares == [2, 1]
    drawn = [torch.randn(slab.weight.value.shape, generator=generator) for _ in given]
    for maps in (FusedMaps(torch.float32), Maps(torch.float32)):
        with arithmetic("fp32"):
            for weights, (grad, x) in zip(drawn, given, strict=True):
                slab.weight.value.copy_(weights)
                maps.refresh(slab)
                z, x_grad = maps.convolve(x, slab, 0, with_sums=False)[0], maps.convolve_backward(grad, slab, 1)[0]
                for layer in range(2):
                    maps.weight_grad(slab, layer, grad, x)
                maps.finish_weight_grads(slab)
                found.append((z, x_grad, slab.weight.gradient.clone()))
    for mine, theirs in zip(found[:2], found[2:], strict=True):
        for one, other in zip(mine, theirs, strict=True):
            check_close(one, other)
