"""Which form a layer can have."""

import pytest
import torch
from torch import nn

from compacting.models import masked_net
from orthosparse import compact, expand, sparsify
from orthosparse.compacting.forms import build, candidates_of, form_of, unit_of
from orthosparse.masking import attach


def tiles(size, grid=(3, 2)):
    return torch.eye(*grid, dtype=torch.bool).repeat_interleave(size, 0).repeat_interleave(size, 1)


@pytest.mark.parametrize(("size", "form"), [(16, "block:16"), (64, "block:64"), (256, "block:128"), (8, "entries")])
def test_masks_have_the_largest_blocks_that_there_are_kernels_for(size, form):
    assert form_of(tiles(size)) == form
    assert form_of(tiles(size)[..., None, None]) == form


def test_units_are_read_from_forms():
    assert (unit_of("entries"), unit_of("block:32")) == (1, 32)
    with pytest.raises(ValueError, match="like: expected forms"):
        unit_of("block:48")


def test_a_full_mask_and_a_shape_of_its_own_stay_as_they_are():
    class Own(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = nn.Sequential(nn.Linear(4, 4), Own(4, 4), nn.Linear(4, 4, dtype=torch.bfloat16))
    masks = {"0": torch.ones(4, 4).bool(), "1": torch.eye(4).bool(), "2": torch.eye(4).bool()}
    attach(model, masks)
    notes = {each.name: each.note for each in candidates_of(model)}
    assert notes["0"] == "every weight is active"
    assert "not a layer of torch's: Own.weight" in notes["1"]
    assert "no kernel in bfloat16" in notes["2"]


def test_the_built_module_has_the_masked_weights(generator):
    model = masked_net(generator, block=16)
    for each in candidates_of(model):
        if each.form != "masked":
            new = build(each)
            assert torch.equal(new.weight, each.module.weight)
            assert torch.equal(new.weight_mask, each.mask)
            assert new.bias is each.module.bias


@pytest.mark.parametrize("scheme", ["eoi", "base", "scaled"])
def test_starts_of_whole_blocks_become_blocks(scheme, generator):
    model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64))
    sparsify(model, 0.5, scheme=scheme, structure="block:16", distribution="uniform", generator=generator)
    assert {each.form for each in candidates_of(model)} == {"block:16"}
    weight = model[0].weight.detach()
    built = {each.name: build(each) for each in candidates_of(model)}
    assert torch.equal(built["0"].weight, weight)
    if scheme == "eoi":
        gram = built["0"].weight @ built["0"].weight.T
        torch.testing.assert_close(gram, torch.eye(128), rtol=0, atol=1e-5)


@pytest.mark.gpu
def test_on_a_gpu_blocks_have_kernels_and_entries_do_not():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).cuda()
    attach(model, {"0": tiles(16, (4, 4)).cuda(), "1": torch.eye(64).bool().cuda()})
    first, second = candidates_of(model)
    assert first.form == "block:16"
    assert second.note == "single entries have no kernel on cuda"


def test_a_layer_with_a_masked_bias_stays_as_it_is(generator):
    model = nn.Sequential(nn.Linear(8, 8))
    attach(model, {"0": torch.rand(8, 8, generator=generator) < 0.5, "0.bias": torch.arange(8) < 4})
    table = compact(model)
    assert [row.note for row in table.rows] == ["the bias has a mask or another parametrization"] * 1 + [
        "not a layer of torch's: Linear.bias"
    ]
    assert not table.exchanged


def test_masks_on_the_meta_device_cannot_say_what_is_active():
    model = nn.Sequential(nn.Linear(4, 4, device="meta"))
    attach(model, {"0": torch.eye(4, dtype=torch.bool)})
    with pytest.raises(ValueError, match="model: expected masks that lie in memory; that of '0' is on the meta device"):
        compact(model)


def _with_buffer(layer):
    layer.register_buffer("scale", torch.ones(1))


def _with_parameter(layer):
    layer.register_parameter("lora", nn.Parameter(torch.ones(2)))


def _with_module(layer):
    layer.adapter = nn.Linear(2, 2)


def _with_forward(layer):
    forward = layer.forward
    layer.forward = lambda x: 2 * forward(x)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (_with_buffer, "the layer also holds 'scale'"),
        (_with_parameter, "the layer also holds 'lora'"),
        (_with_module, "the layer also holds 'adapter'"),
        (_with_forward, "the layer has a forward of its own"),
    ],
)
@pytest.mark.parametrize("when", ["before the mask", "after it"])
def test_a_layer_that_holds_or_does_more_than_torchs_stays_as_it_is(change, note, when, generator):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    if when == "before the mask":
        change(model[0])
    attach(model, {name: torch.rand(8, 8, generator=generator) < 0.5 for name in "01"})
    if when == "after it":
        change(model[0])
    state = list(model.state_dict())
    x = torch.randn(3, 8, generator=generator)
    expected = model(x)
    table = compact(model)
    assert table.exchanged == {"1": "entries"}
    assert table.rows[0].note == note
    torch.testing.assert_close(model(x), expected)
    expand(model)
    assert list(model.state_dict()) == state
