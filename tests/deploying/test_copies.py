"""Copies for inference, and what they are called with."""

import pytest
import torch
from torch import nn

from orthosparse import masks_of, sparsify
from orthosparse.deploying.copies import arguments_of, difference, in_format, inference_copy, outputs_of


def test_a_copy_has_no_masks_no_gradients_and_eval_mode(generator):
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout())
    sparsify(model, 0.5, generator=generator)
    copy = inference_copy(model, None)
    assert not masks_of(copy)
    assert not copy.training
    assert not any(parameter.requires_grad for parameter in copy.parameters())
    assert masks_of(model)
    assert torch.equal(copy[0].weight, model[0].weight)


def test_compiled_models_are_copied_from_what_they_compile():
    assert type(inference_copy(torch.compile(nn.Sequential(nn.Linear(2, 2))), None)) is nn.Sequential


def test_examples_are_tensors_arguments_or_keywords():
    x = torch.ones(1, requires_grad=True)
    assert arguments_of(x, None)[0][0].requires_grad is False
    assert arguments_of((x, 3), None)[0][1] == 3
    assert set(arguments_of({"x": x}, None)[1]) == {"x"}
    with pytest.raises(TypeError, match="example: expected a tensor"):
        arguments_of(3, None)


def test_outputs_may_be_nested_and_must_be_there():
    class Nested(nn.Module):
        def forward(self, x):
            return {"a": [x, x.long()], "b": (2 * x, None)}

    class Nothing(nn.Module):
        def forward(self, x):
            return len(x)

    found = outputs_of(Nested(), ((torch.ones(1),), {}))
    assert [float(each) for each in found] == [1.0, 2.0]
    with pytest.raises(ValueError, match="model: expected one that returns floating-point tensors; got none"):
        outputs_of(Nothing(), ((torch.ones(1),), {}))


def test_differences_are_relative_and_shapes_and_nans_differ():
    one, two = torch.tensor([1.0, -4.0]), torch.tensor([2.0, -4.0])
    assert difference([one], [two]) == 0.25
    assert difference([one], [one]) == 0.0
    assert difference([one[:1]], [two]) == float("inf")
    assert not difference([torch.tensor([float("nan"), 1.0])], [two]) <= 1e9
    assert difference([torch.zeros(0)], [torch.zeros(0)]) == 0.0


def test_a_format_is_that_of_the_copy_alone():
    layer = nn.Conv2d(2, 2, 3)
    last = in_format(layer, torch.channels_last)
    assert last.weight.is_contiguous(memory_format=torch.channels_last)
    assert layer.weight.is_contiguous()


def test_nans_differ_in_any_output_and_what_is_not_finite_in_both_does_not():
    one, two, nan, inf = (torch.tensor([1.0, value]) for value in (1.0, 2.0, torch.nan, torch.inf))
    assert difference([one, nan], [one, two]) == difference([nan, one], [two, one]) == float("inf")
    assert difference([inf], [two]) == difference([one], [nan]) == difference([-inf], [inf]) == float("inf")
    assert difference([inf, nan, one], [inf, nan, two]) == 0.5
