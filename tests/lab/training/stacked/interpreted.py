"""Our kernels against torch's own operations: `test_fused` has this run by Triton's interpreter."""

import pytest
import torch

from orthosparse.lab.models.stages import Grid, Stage
from orthosparse.lab.training.devices import arithmetic
from orthosparse.lab.training.stacked import fused, launches, operations
from orthosparse.lab.training.stacked.chain import LayerRun
from orthosparse.lab.training.stacked.slab import Slab

CPU = torch.device("cpu")
NAMES = tuple(f"layer{index}" for index in range(3))
STAGES = {
    "linear": Stage(NAMES, 16, 16, activation="tanh"),
    "convolution": Stage(NAMES, 16, 16, Grid(3, 2, 3, 1), activation="tanh"),
    "one tap": Stage(NAMES, 16, 16, Grid(2, 3, 1, 1), activation="tanh"),
    "one layer": Stage(NAMES[:1], 32, 32, activation="tanh"),
}
# Fewer rows than a tile has, and some tiles with a rest.
BATCHES = (5, 24)


def slab_of(stage, generator, members=2, device=CPU):
    slab = Slab(stage, members, torch.float32, device)
    shape = slab.weight.value.shape
    slab.weight.off.copy_(torch.rand(shape, generator=generator) < 0.4)
    slab.weight.value.copy_(torch.randn(shape, generator=generator) * 1.2 / stage.fan_in**0.5)
    slab.weight.value.masked_fill_(slab.weight.off, 0.0)
    slab.bias.value.copy_(torch.randn(shape[:3], generator=generator) * 0.1)
    return slab


def passed(run, x, grad, *, first):
    """Return the results of the forward and backward passes of a run."""
    slab = run.slab
    for leaf in slab.leaves:
        leaf.gradient.fill_(torch.nan)
        leaf.norms.fill_(torch.nan)
    output, saved = run.forward(x)
    inferred, input_grad = run.infer(x), run.backward(grad, saved, first=first)
    assert (input_grad is None) == first
    leaves = [tensor.clone() for leaf in slab.leaves for tensor in (leaf.gradient, leaf.norms)]
    return [output, inferred, *([] if first else [input_grad]), *leaves]


def check(stage, batch, generator, *, device=CPU, dtype=torch.float32, members=2, tolerance=2e-6):
    slab = slab_of(stage, generator, members, device)
    x, grad = (torch.randn(members, batch, stage.features[0], generator=generator).to(device, dtype) for _ in range(2))
    for first in (False, True):
        mine = passed(fused.run_of(slab, dtype, True), x.clone(), grad, first=first)
        theirs = passed(LayerRun(slab, dtype), x.clone(), grad, first=first)
        for found, expected in zip(mine, theirs, strict=True):
            scale = float(expected.float().abs().max())
            torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", STAGES)
def test_the_kernels_compute_what_torch_computes(name, batch, generator):
    assert type(fused.run_of(slab_of(STAGES[name], generator), torch.float32, True)) is not LayerRun
    with arithmetic("fp32"):
        check(STAGES[name], batch, generator)


def to_tf32(tensor):
    """Round to 10 bits after the point, by arithmetic instead of bits."""
    fraction, exponent = torch.frexp(tensor.double())
    return torch.ldexp(torch.floor(fraction.abs() * 2048 + 0.5) / 2048 * fraction.sign(), exponent)


def test_in_tf32_all_factors_are_rounded_to_nearest(generator):
    stage, batch, members = STAGES["linear"], 40, 2
    slab = slab_of(stage, generator)
    x, grad = (torch.randn(members, batch, 16, generator=generator) for _ in range(2))
    with arithmetic("tf32"):
        run = fused.run_of(slab, torch.float32, True)
        found = passed(run, x, grad, first=False)
    outputs, weights = [to_tf32(x)], to_tf32(slab.weight.value)
    for weight, bias in zip(weights, slab.bias.value.double(), strict=True):
        outputs.append(to_tf32(torch.tanh(outputs[-1] @ weight.mT + bias.unsqueeze(1)).float()))
    slope, slopes = grad.double(), torch.empty_like(weights)
    for layer in reversed(range(len(weights))):
        before = to_tf32((slope * (1 - outputs[layer + 1] ** 2)).float())
        slopes[layer], slope = before.mT @ outputs[layer], before @ weights[layer]
    slopes.masked_fill_(slab.weight.off, 0.0)
    # A last bit may fall the other way where float32 stands between two.
    for mine, theirs in ((found[0], outputs[-1]), (found[2], slope), (found[3], slopes)):
        assert float((mine - theirs).norm() / theirs.norm()) < 1e-4
    torch.testing.assert_close(slab.rounded.double(), weights, rtol=0, atol=0)


@pytest.mark.parametrize("bits", [0x7FFFFFFF, 0x7FC00000, -1])
def test_rounding_hides_nothing_that_is_not_a_number(bits, generator):
    slab = slab_of(STAGES["linear"], generator)
    x = torch.randn(2, 5, 16, generator=generator)
    x[0, 2, 3] = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    with arithmetic("tf32"):
        assert launches.rounded(x).isnan().sum() == 1
        found = passed(fused.run_of(slab, torch.float32, True), x, torch.ones(2, 5, 16), first=False)
    assert found[0][0, 2].isnan().all()
    assert found[0].isnan().sum() == 16
    assert found[4].isnan().any(0).tolist() == [True, False], "the norms tell whose it is"


def test_the_update_keeps_a_rounded_copy(generator):
    leaf = slab_of(STAGES["linear"], generator).weight
    value, gradient, momentum = (
        leaf.value.flatten(2),
        torch.randn(3, 2, 256, generator=generator),
        torch.zeros(3, 2, 256),
    )
    copy, alive = torch.full_like(value, torch.nan), torch.zeros(1, 2, 1, dtype=torch.bool)
    launches.sgd_step(value, gradient, momentum, alive, torch.full((1, 2, 1), 0.1), (0.0, 0.9, True), copy=copy)
    assert torch.equal(copy.double(), to_tf32(value))


def test_weights_that_somebody_wrote_are_rounded_anew(generator):
    slab = slab_of(STAGES["linear"], generator)
    with arithmetic("tf32"):
        run = fused.run_of(slab, torch.float32, True)
        run.cast()
        slab.weight.value.mul_(1.7)
        assert torch.equal(run.cast()[0].double(), to_tf32(slab.weight.value))


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_update_is_that_of_torch_and_the_stopped_stay_as_they_are(nesterov, generator):
    made = [torch.randn(2, 3, 5, generator=generator) for _ in range(3)]
    made[1][:, 1] = torch.nan
    dead, rate = torch.tensor([[[False], [True], [False]]]), torch.tensor([[[0.1], [0.0], [0.0]]])
    states = []
    for step in (operations.sgd_step, launches.sgd_step):
        value, gradient, momentum = (tensor.clone() for tensor in made)
        step(value, gradient, momentum, dead, rate, (1e-2, 0.9, nesterov))
        states.append((value, momentum[:, [0, 2]]))
        assert torch.equal(value[:, 1], made[0][:, 1])
    torch.testing.assert_close(states[0], states[1], rtol=1e-6, atol=1e-6)


def test_groups_that_are_off_their_mask_are_left_out_and_no_others(generator):
    leaf = slab_of(STAGES["linear"], generator).weight
    leaf.off[0, 1, 3, 8:16] = True
    leaf.value.masked_fill_(leaf.off, 0.0)
    active = launches.active_groups(leaf)
    assert not active.view(3, 2, 16, 2)[0, 1, 3, 1]
    assert int(active.sum()) > active.numel() // 2
    gradient = torch.randn(leaf.value.shape, generator=generator).masked_fill_(leaf.off, 0.0)
    found = []
    for step, own in ((operations.sgd_step, {}), (launches.sgd_step, {"active": active})):
        value, momentum = leaf.value.clone(), torch.zeros_like(leaf.value)
        flat = (tensor.clone().flatten(2) for tensor in (value, gradient, momentum))
        value, slope, momentum = flat
        step(
            value,
            slope,
            momentum,
            torch.zeros(1, 2, 1, dtype=torch.bool),
            torch.full((1, 2, 1), 0.1),
            (0.1, 0.9, True),
            **own,
        )
        found.append((value, momentum))
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-6)
