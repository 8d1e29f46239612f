"""Masks from and to torch.nn.utils.prune."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import orthosparse
from contracts.states import assert_same, state_of
from masking.models import Tied, filled, mlp
from orthosparse import compact, masking
from orthosparse.layers import leaf
from orthosparse.masking.formats import export_prune_masks, import_prune_masks


def test_masks_come_from_torch_prune_and_go_back(generator):
    model = mlp(generator)
    parameter = model[0].weight
    prune.l1_unstructured(model[0], "weight", amount=0.6)
    prune.custom_from_mask(model[2][0], "bias", torch.arange(6) > 1)
    x = torch.randn(4, 5, generator=generator)
    expected, kept = model(x), model[0].weight_mask.bool()
    masks = import_prune_masks(model)
    assert [*masks] == ["0", "2.0.bias"]
    assert torch.equal(masks["0"], kept)
    torch.testing.assert_close(model(x), expected)
    assert leaf(model[0], "weight") is parameter
    assert not prune.is_pruned(model)
    export_prune_masks(model)
    assert prune.is_pruned(model)
    assert not masking.is_sparsified(model)
    assert model[0].weight_orig is parameter
    assert torch.equal(model[0].weight_mask.bool(), kept)
    torch.testing.assert_close(model(x), expected)


def test_tied_tensors_come_from_torch_prune_if_they_were_pruned_alike(generator):
    model, mask = filled(Tied(), generator), torch.eye(4)
    prune.custom_from_mask(model.one, "weight", mask)
    prune.custom_from_mask(model.two, "weight", 1 - mask)
    with pytest.raises(ValueError, match="'one' and 'two' hold one parameter, but were pruned apart"):
        import_prune_masks(model)
    assert prune.is_pruned(model)
    model.two.weight_mask.copy_(mask)
    import_prune_masks(model)
    assert torch.equal(masking.masks_of(model)["one"], mask.bool())
    assert model.one.weight_mask is model.two.weight_mask
    export_prune_masks(model)
    assert model.one.weight_orig is model.two.weight_orig


def test_a_model_that_was_not_pruned_has_nothing_to_import(generator):
    with pytest.raises(ValueError, match=r"expected masks of torch\.nn\.utils\.prune"):
        import_prune_masks(mlp(generator))


def test_masks_of_compact_models_go_to_torch_prune_too(generator):
    model = mlp(generator)
    masking.attach(model, {"0": torch.rand(model[0].weight.shape, generator=generator) < 0.5})
    expected, mask = model[0].weight.detach().clone(), model[0].weight_mask.clone()
    compact(model)
    export_prune_masks(model)
    assert torch.equal(model[0].weight_mask.bool(), mask)
    assert torch.equal(model[0].weight, expected)


def test_a_name_that_torch_cannot_parametrize_is_refused_and_stays_pruned(generator):
    model = mlp(generator)
    model.register_parameter("keys", nn.Parameter(torch.randn(4, 4, generator=generator)))
    for module, tensor in ((model[0], "weight"), (model, "keys")):
        prune.l1_unstructured(module, tensor, amount=3)
    before = [*model.state_dict()]
    with pytest.raises(ValueError, match="model: 'keys' has a name"):
        import_prune_masks(model)
    assert [*model.state_dict()] == before


def test_a_tensor_that_cannot_be_masked_leaves_all_of_them_pruned(generator):
    model = filled(nn.Sequential(nn.Linear(4, 3), nn.Embedding(8, 4, sparse=True)), generator)
    for module in model:
        prune.l1_unstructured(module, "weight", amount=0.5)
    x = torch.randn(2, 4, generator=generator)
    names, expected = [*model.state_dict()], model[0](x)
    objects = [*model.parameters(), *model.buffers(), *(module.weight for module in model)]
    addresses, values = [each.data_ptr() for each in objects], [each.detach().clone() for each in objects]
    with pytest.raises(ValueError, match="has sparse gradients"):
        import_prune_masks(model)
    assert all(prune.is_pruned(module) for module in model)
    assert [*model.state_dict()] == names
    after = [*model.parameters(), *model.buffers(), *(module.weight for module in model)]
    assert [id(each) for each in after] == [id(each) for each in objects]
    assert [each.data_ptr() for each in after] == addresses
    assert all(map(torch.equal, after, values))
    torch.testing.assert_close(model[0](x), expected)


def make(structure="2:4"):
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    exclude = ["4"] if structure == "2:4" else []
    orthosparse.sparsify(model, 0.5, structure=structure, exclude=exclude, generator=torch.Generator().manual_seed(0))
    return model


@pytest.mark.parametrize("structure", ["entries", "block:32"])
def test_a_model_without_2_4_masks_is_refused_and_unchanged(structure):
    model = make(structure)
    before = state_of(model)
    with pytest.raises(
        ValueError, match=r"model: expected a linear layer with a mask of two of any four .*; found none"
    ):
        orthosparse.to_semi_structured(model)
    assert_same(before, model.state_dict())


def test_what_torch_cannot_convert_is_named_and_the_model_unchanged():
    model = make()
    before = state_of(model)
    with pytest.raises(ValueError, match=r"model: torch has no semi-structured tensor for '0': .*CUDA") as caught:
        orthosparse.to_semi_structured(model)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert_same(before, model.state_dict())


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


def test_in_inference_mode_a_pruned_model_is_refused_and_stays_pruned():
    model = nn.Sequential(nn.Linear(4, 4))
    prune.l1_unstructured(model[0], "weight", amount=3)
    with torch.inference_mode(), pytest.raises(ValueError, match=r"outside of torch\.inference_mode"):
        import_prune_masks(model)
    assert prune.is_pruned(model)
