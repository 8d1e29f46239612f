"""Our GPU kernels for residual networks against torch's own operations, as compiled where there is a GPU."""

import pytest
import torch

from lab.training.ensemble.stacked import check_same, given_to, networks_of, passed, stacked
from orthosparse.lab.training.devices import arithmetic
from orthosparse.lab.training.ensemble.layout import layout_of
from orthosparse.lab.training.ensemble.maps import Maps
from orthosparse.lab.training.ensemble.own_maps import OwnMaps, fits
from orthosparse.lab.training.ensemble.ways import Ways

PICTURES = (3, 32, 32)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("precision", "dtype", "tolerance"), [("fp32", torch.float32, 1e-4), ("bf16", torch.bfloat16, 0.1)]
)
@pytest.mark.parametrize("batch", [24, 5])
def test_on_a_gpu_the_compiled_kernels_compute_what_torch_computes(precision, dtype, tolerance, batch, generator):
    networks, device = networks_of(PICTURES, generator, depth=14, members=3), torch.device("cuda")
    images, weights = given_to(PICTURES, batch, generator, members=3, device=device)
    found = {}
    with arithmetic(precision):
        for fused in (True, False):
            network, slabs = stacked(networks, PICTURES, Ways(fused=fused), compute=dtype, device=device, masked=True)
            assert type(network.maps) is (OwnMaps if fused else Maps)
            found[fused] = passed(network, slabs, images, weights)
    check_same(found[True], found[False], tolerance)


@pytest.mark.gpu
def test_on_a_gpu_the_bits_of_a_member_do_not_depend_on_the_others(generator):
    networks, device = networks_of(PICTURES, generator, members=3), torch.device("cuda")
    images, weights = given_to(PICTURES, 24, generator, members=3, device=device)
    whole, alone = (
        passed(*stacked(chosen, PICTURES, Ways(fused=True), compute=torch.bfloat16, device=device), *given)
        for chosen, given in ((networks, (images, weights)), (networks[1:], (images[1:], weights[1:])))
    )
    assert torch.equal(whole["logits"][1:], alone["logits"])
    assert torch.equal(whole["0 scale"][:, 1:], alone["0 scale"])


def test_networks_that_do_not_fit_are_left_to_torch(generator):
    layout = layout_of(networks_of(PICTURES, generator)[0], PICTURES)
    assert fits(layout, torch.float32)
    assert fits(layout, torch.bfloat16)
    assert not fits(layout, torch.float64)
    many = (5, 8, 8)
    assert not fits(layout_of(networks_of(many, generator)[0], many), torch.float32)
