"""Masks from and to torch.nn.utils.prune."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from orthosparse import compact, masking
from orthosparse.masking.prune import export_prune_masks, import_prune_masks
from orthosparse.parametrized import leaf


def filled(model, generator):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def mlp(generator):
    return filled(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Sequential(nn.Linear(7, 6)), nn.Linear(6, 3)), generator)


def tied(generator):
    model = nn.ModuleDict({"one": nn.Linear(4, 4, bias=False), "two": nn.Linear(4, 4, bias=False)})
    model["two"].weight = model["one"].weight
    return filled(model, generator)


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
    model, mask = tied(generator), torch.eye(4)
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
