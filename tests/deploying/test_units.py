"""Constants and needs through single operations, worked by hand."""

import torch
from torch import fx, nn

from orthosparse.deploying.units import (
    ChannelwiseRule,
    Constants,
    FlattenRule,
    LayerRule,
    ProductRule,
    Rule,
    SumRule,
)

NODE = fx.Graph().placeholder("x")


def constants(*values):
    """None where nothing is known."""
    known = torch.tensor([value is not None for value in values])
    return Constants(known, torch.tensor([value or 0.0 for value in values], dtype=torch.float64))


def read(found):
    return [float(value) if known else None for known, value in zip(found.known, found.value, strict=True)]


def layer(weight, bias, kind=nn.Linear, **options):
    weight = torch.tensor(weight, dtype=torch.float64)
    module = kind(weight.shape[1] * options.get("groups", 1), len(weight), *weight.shape[2:3], **options)
    module = module.double().requires_grad_(False)
    module.weight.copy_(weight)
    module.bias.copy_(torch.tensor(bias, dtype=torch.float64))
    return module


def test_activations_map_constants():
    rule = Rule(NODE, 1, 3, (NODE,), torch.relu)
    assert read(rule.constants([constants(2.0, None, -1.0)])) == [2.0, None, 0.0]


def test_pools_with_padding_keep_zeros_alone():
    assert read(Rule(NODE, 1, 3, (NODE,)).constants([constants(2.0, 0.0, None)])) == [None, 0.0, None]


def test_sums_need_both_and_products_one_zero():
    a, b = constants(2.0, None, 0.0, 3.0), constants(1.0, 5.0, None, None)
    assert read(SumRule(NODE, 1, 4, (NODE, NODE)).constants([a, b])) == [3.0, None, None, None]
    assert read(ProductRule(NODE, 1, 4, (NODE, NODE)).constants([a, b])) == [2.0, None, 0.0, None]


def test_flattening_repeats_channels():
    rule = FlattenRule(NODE, 1, 4, (NODE,), repeats=2)
    assert read(rule.constants([constants(7.0, None)])) == [7.0, 7.0, None, None]
    need = torch.tensor([False, False, True, False])
    assert rule.needed(need).tolist() == [False, False, True, True]
    assert rule.reads(need, constants(), [])[0].tolist() == [False, True]


def test_outputs_that_read_constants_alone_are_constant():
    rule = LayerRule(NODE, 1, 3, (NODE,), module=layer([[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]], [0.5, 1.0, 4.0]))
    inputs = constants(None, 10.0)
    found = rule.constants([inputs])
    assert read(found) == [None, 31.0, 4.0]
    (reads,) = rule.reads(torch.tensor([True, True, True]), found, [inputs])
    assert reads.tolist() == [True, False]


def test_padding_makes_constants_vary_unless_they_are_zero():
    module = layer([[[1.0, 1.0, 1.0]]], [2.0], nn.Conv1d, padding=1)
    rule = LayerRule(NODE, 1, 1, (NODE,), module=module)
    assert read(rule.constants([constants(5.0)])) == [None]
    assert read(rule.constants([constants(0.0)])) == [2.0]


def test_depthwise_and_norms_map_each_channel():
    module = layer([[[2.0]], [[0.0]]], [1.0, 3.0], nn.Conv1d, groups=2)
    rule = ChannelwiseRule(NODE, 1, 2, (NODE,), module=module)
    assert read(rule.constants([constants(4.0, None)])) == [9.0, 3.0]
    norm = nn.BatchNorm1d(2, eps=0.0).double().eval()
    norm.running_mean.copy_(torch.tensor([1.0, 0.0]))
    norm.running_var.copy_(torch.tensor([4.0, 1.0]))
    rule = ChannelwiseRule(NODE, 1, 2, (NODE,), module=norm.requires_grad_(False))
    assert read(rule.constants([constants(5.0, None)])) == [2.0, None]
