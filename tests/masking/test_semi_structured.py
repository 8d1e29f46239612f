import pytest
import torch
from torch import nn

import orthosparse


def make(structure="2:4"):
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    exclude = ["4"] if structure == "2:4" else []
    orthosparse.sparsify(model, 0.5, structure=structure, exclude=exclude, generator=torch.Generator().manual_seed(0))
    return model


@pytest.mark.parametrize("structure", ["entries", "block:32"])
def test_a_model_without_2_4_masks_is_refused_and_unchanged(structure):
    model = make(structure)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(
        ValueError, match=r"model: expected a linear layer with a mask of two of any four .*; found none"
    ):
        orthosparse.to_semi_structured(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_torch_cannot_convert_is_named_and_the_model_unchanged():
    model = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"model: torch has no semi-structured tensor for '0': .*CUDA") as caught:
        orthosparse.to_semi_structured(model)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_outputs_are_those_of_the_masked_model(dtype):
    model = make().to("cuda", dtype)
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(1)).to("cuda", dtype)
    with torch.no_grad():
        expected = model(x)
        assert orthosparse.to_semi_structured(model) == ["0", "2"]
        assert not orthosparse.masks_of(model)
        assert isinstance(model[0].weight, torch.sparse.SparseSemiStructuredTensor)
        # Sums of 64 and 128 products in float32, rounded to the dtype once a layer.
        torch.testing.assert_close(model(x), expected, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.gpu
def test_sides_that_torch_does_not_take_are_named_and_the_model_unchanged():
    model = nn.Sequential(nn.Linear(12, 20)).to("cuda", torch.float16)
    orthosparse.sparsify(model, 0.5, structure="2:4")
    with pytest.raises(ValueError, match=r"model: torch has no semi-structured tensor for '0': .*shape"):
        orthosparse.to_semi_structured(model)
    assert list(orthosparse.masks_of(model)) == ["0"]
