"""Convolutions and normalisations between feature maps in torch's own operations."""

import torch

from lab.training.stacked.stacked import CPU, check_constant
from orthosparse.lab.models.stages import Grid, Norms, Stage
from orthosparse.lab.training.stacked.maps import Maps
from orthosparse.lab.training.stacked.slab import NormSlab


def test_a_constant_channel_becomes_its_shift_and_nothing_else(generator):
    stage, norms = Stage(("a",), 3, 8, Grid(2, 2, 3, 1)), Norms(("b",), 1e-5, 0.1)
    slab = NormSlab(stage, norms, 2, torch.float32, CPU)
    for leaf in slab.leaves:
        leaf.value.copy_(torch.randn(leaf.value.shape, generator=generator))
    check_constant(Maps(torch.float32), slab, generator)
