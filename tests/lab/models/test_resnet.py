import pytest
import torch
from torch import nn
from torch.nn import functional as F

from orthosparse.lab.models import build
from orthosparse.lab.models.resnet import Block, resnet


def test_only_the_first_blocks_of_the_later_stages_have_a_projection(generator):
    model = build("resnet32", classes=10, in_shape=(3, 32, 32), generator=generator)
    projected = {name: module for name, module in model.named_modules() if ".shortcut.0" in name}
    assert list(projected) == ["layer2.0.shortcut.0", "layer3.0.shortcut.0"]
    for conv in projected.values():
        assert (conv.kernel_size, conv.stride, conv.bias) == ((1, 1), (2, 2), None)
    assert isinstance(model.layer2[0].shortcut[1], nn.BatchNorm2d)
    assert [len(stage) for stage in (model.layer1, model.layer2, model.layer3)] == [5, 5, 5]


def test_a_block_is_the_activated_sum_of_both_ways(generator):
    with torch.random.fork_rng(devices=[]):
        block = Block(2, 4, 2, "tanh").eval()
    x = torch.randn(3, 2, 6, 6, generator=generator)
    scale = (1 + 1e-5) ** -0.5  # batch normalisation with mean 0 and variance 1
    inner = torch.tanh(F.conv2d(x, block.conv1.weight, stride=2, padding=1) * scale)
    outer = F.conv2d(inner, block.conv2.weight, padding=1) * scale
    side = F.conv2d(x, block.shortcut[0].weight, stride=2) * scale
    torch.testing.assert_close(block(x), torch.tanh(outer + side))


def test_maps_shrink_to_a_quarter_before_the_global_average(generator):
    model = build("resnet32", classes=10, in_shape=(3, 32, 32), generator=generator)
    sides = []
    for stage in (model.layer1, model.layer2, model.layer3):
        stage.register_forward_hook(lambda module, args, out: sides.append(tuple(out.shape[1:])))
    model(torch.zeros(2, 3, 32, 32))
    assert sides == [(16, 32, 32), (32, 16, 16), (64, 8, 8)]


@pytest.mark.parametrize("depth", [2, 9, 31, -4])
def test_depths_that_make_no_whole_blocks_are_refused(depth):
    with pytest.raises(ValueError, match=rf"depth: expected 6 n \+ 2 .*got {depth}"):
        resnet(classes=10, in_shape=(3, 32, 32), depth=depth)
