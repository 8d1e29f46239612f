import math

import pytest
import torch
from torch import nn

from contracts.seeded import seeded
from orthosparse.layers import find_layers
from orthosparse.masks import counts_of, draw
from orthosparse.schemes.eoi import eoi, eoi_floor


def mask_of(shape, count):
    return torch.arange(math.prod(shape)).view(shape) < count  # where its ones are must not matter


def singular_values(matrix):
    return torch.linalg.svdvals(matrix.detach().double())


def is_isometry(matrix, tol=1e-12):
    return bool((singular_values(matrix) - 1).abs().max() < tol)


KERNELS = {
    "plain": nn.Conv2d(6, 8, 3, padding=1, padding_mode="circular", bias=False),
    "pointwise": nn.Conv2d(6, 6, 1, bias=False),
    "line": nn.Conv2d(6, 8, (1, 3), padding=(0, 1), padding_mode="circular", bias=False),
    "signal": nn.Conv1d(5, 7, 5, padding=2, padding_mode="circular", bias=False),
    "volume": nn.Conv3d(3, 4, 3, padding=1, padding_mode="circular", bias=False),
    "groups": nn.Conv2d(6, 8, 3, padding=1, padding_mode="circular", groups=2, bias=False),
    "depthwise": nn.Conv2d(6, 12, 3, padding=1, padding_mode="circular", groups=6, bias=False),
}


@pytest.mark.parametrize("tap", ["center", "random"])
@pytest.mark.parametrize("name", KERNELS)
def test_convolutions_with_enough_outputs_keep_norms(name, tap, generator):
    conv = KERNELS[name].double()
    shape = tuple(conv.weight.shape)
    count = max(next(iter(find_layers(conv).values())).floor, round(0.3 * conv.weight.numel()))
    depthwise = "shift" if tap == "random" else "center"
    masks = eoi(conv, {"weight": mask_of(shape, count)}, tap=tap, depthwise=depthwise, generator=generator)
    x = torch.randn(2, conv.in_channels, *[6] * (len(shape) - 2), generator=generator, dtype=torch.float64)
    assert int(masks["weight"].sum()) == count
    assert torch.allclose(conv(x).flatten(1).norm(dim=1), x.flatten(1).norm(dim=1), rtol=1e-12)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_transposed_convolutions_and_even_kernels_hold_an_orthogonal_matrix_per_group(kernel, groups, generator):
    conv = nn.ConvTranspose2d(8, 4, kernel, groups=groups).double()
    layer = find_layers(conv)["weight"]
    count = layer.numel // 4
    mask = eoi(conv, {"weight": mask_of(layer.shape, count)}, depthwise="center", generator=generator)["weight"]
    assert int(mask.sum()) == count
    for matrix in layer.matrices(conv.weight.detach())[0]:
        center = (kernel - 1) // 2 * (kernel + 1)
        assert is_isometry(matrix[:, :, center])
        assert int(matrix.count_nonzero()) == int(matrix[:, :, center].count_nonzero())


def test_fused_projections_are_orthogonal_block_by_block_and_share_the_count(generator):
    attention = nn.MultiheadAttention(8, 2).double()
    masks = {name: mask_of(layer.shape, layer.numel // 3) for name, layer in find_layers(attention).items()}
    result = eoi(attention, masks, generator=generator)
    for block, mask in zip(attention.in_proj_weight.chunk(3), result["in_proj_weight"].chunk(3), strict=True):
        assert is_isometry(block)
        assert int(mask.sum()) in (21, 22)
    assert int(result["in_proj_weight"].sum()) == 64


@pytest.mark.parametrize("tap", ["center", "random"])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_every_block_of_a_split_convolution_keeps_norms(kernel, memory, tap, generator):
    sizes, sides = [6, 9, 7], {"padding": "same", "padding_mode": "circular"}
    model = nn.Sequential(nn.Conv2d(6, 22, kernel, bias=False, **sides)).double().to(memory_format=memory)
    layers, count = find_layers(model, split={"0": sizes}), model[0].weight.numel() // 3
    assert layers["0"].floor == 18
    mask = eoi(model, {"0": mask_of(layers["0"].shape, count)}, layers=layers, tap=tap, generator=generator)["0"]
    assert int(mask.sum()) == count
    assert model[0].weight[~mask].count_nonzero() == 0
    assert model[0].weight.is_contiguous(memory_format=memory)
    x = torch.randn(2, 6, 5, 5, generator=generator, dtype=torch.float64)
    for block, active in zip(model(x).split(sizes, 1), mask.split(sizes), strict=True):
        assert torch.allclose(block.flatten(1).norm(dim=1), x.flatten(1).norm(dim=1), rtol=1e-12)
        assert abs(int(active.sum()) - active.numel() / 3) <= 1


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_a_block_that_lies_in_two_groups_is_orthogonal_in_both(kind, generator):
    model = nn.Sequential(kind(8, 24, 1, groups=2, bias=False)).double()
    layers = find_layers(model, split={"0": 3})
    assert layers["0"].floor == 4 * 4
    masks = {"0": mask_of(layers["0"].shape, 40)}
    assert int(eoi(model, masks, layers=layers, depthwise="center", generator=generator)["0"].sum()) == 40
    matrix = model(torch.eye(8, dtype=torch.float64).unsqueeze(-1))[..., 0].T  # its columns: the images of the units
    first, middle, last = matrix.detach().split(8)
    assert is_isometry(middle)
    assert is_isometry(first[:, :4])
    assert is_isometry(last[:, 4:])


def test_below_its_floor_a_split_convolution_is_a_partial_isometry(generator):
    model = nn.Sequential(nn.Conv1d(16, 16, 1, bias=False)).double()
    layers = find_layers(model, split={"0": 4})
    masks = {"0": mask_of((16, 16, 1), 8)}
    with pytest.raises(ValueError, match="'0' has 8 of 16"):
        eoi(model, masks, layers=layers, floor="error", generator=generator)
    eoi(model, masks, layers=layers, generator=generator)
    for block in model[0].weight[..., 0].split(4):
        assert sorted(singular_values(block).round(decimals=12).tolist()) == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("count", [14, 15, 40, 256])
def test_unequal_blocks_get_their_floors_and_their_share(count, generator):
    model = nn.Sequential(nn.Linear(8, 32)).double()
    sizes, floors = [26, 4, 2], [8, 4, 2]  # in proportion to the sizes, 14 entries would be 11, 2 and 1
    layers = find_layers(model, split={"0": sizes})
    assert layers["0"].floor == sum(floors)
    masks = eoi(model, {"0": mask_of((32, 8), count)}, layers=layers, generator=generator)
    blocks = masks["0"].split(sizes)
    assert sum(int(block.sum()) for block in blocks) == count
    for block, weight, floor in zip(blocks, model[0].weight.split(sizes), floors, strict=True):
        assert int(block.sum()) >= floor
        assert is_isometry(weight)
        if count >= 40:
            assert abs(int(block.sum()) - count * len(block) / 32) <= 1


def test_every_gate_of_a_recurrent_layer_is_orthogonal(generator):
    lstm = nn.LSTM(6, 8, num_layers=2, bidirectional=True).double()
    layers = find_layers(lstm)
    masks = {name: mask_of(layer.shape, layer.numel // 2) for name, layer in layers.items()}
    result = eoi(lstm, masks, generator=generator)
    assert counts_of(result) == counts_of(masks)
    for layer in layers.values():
        assert all(is_isometry(gate) for gate in layer.parameter().chunk(4))


def test_weights_stored_transposed_are_filled_as_the_matrices_they_are(generator):
    class Conv1D(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(6, 18, dtype=torch.float64))

        def forward(self, x):
            return x @ self.weight

    model = nn.ModuleDict({"c_attn": Conv1D()})
    mask = eoi(model, {"c_attn": mask_of((6, 18), 40)}, generator=generator)["c_attn"]
    assert mask.shape == (6, 18)
    assert mask.is_contiguous()
    assert int(mask.sum()) == 40
    assert all(is_isometry(block) for block in model["c_attn"].weight.split(6, dim=1))
    assert bool((model["c_attn"].weight[~mask] == 0).all())


@pytest.mark.parametrize(
    ("center_density", "center"),
    # 20 x 20 x 3 x 3 at 0.16: 576 entries. sqrt(0.16) * 400 = 160; 0.16 * 400 = 64; 0.5 * 400 = 200; 1 * 400 = 400
    [(None, 160), ("density", 64), (0.5, 200), (1.0, 400), (0.0, 20)],
)
def test_the_center_has_the_density_asked_for_and_the_rest_is_unfrozen(center_density, center, generator):
    conv = nn.Conv2d(20, 20, 3)
    masks = eoi(conv, {"weight": mask_of((20, 20, 3, 3), 576)}, center_density=center_density, generator=generator)
    weight, mask = conv.weight.detach(), masks["weight"]
    assert int(weight.count_nonzero()) == center
    assert int(weight[:, :, 1, 1].count_nonzero()) == center
    assert int(mask.sum()) == 576
    assert bool(mask[weight != 0].all())


def test_grouped_layers_are_kept_by_default(generator):
    model = nn.Sequential(nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 8, 3, groups=2), nn.Conv2d(8, 8, 1))
    before = [module.weight.detach().clone() for module in model]
    masks = {
        name: draw(layer.shape, layer.numel // 2, generator=generator) for name, layer in find_layers(model).items()
    }
    result = eoi(model, masks, generator=generator)
    for index in (0, 1):
        assert torch.equal(result[str(index)], masks[str(index)])
        assert torch.equal(model[index].weight, before[index] * masks[str(index)])
        assert torch.equal(model[index].bias, torch.zeros_like(model[index].bias))
    assert is_isometry(model[2].weight[:, :, 0, 0], tol=1e-6)


def test_a_depthwise_kernel_is_one_signed_tap_per_channel(generator):
    shape = (300, 1, 3, 3)
    for depthwise in ("center", "shift"):
        conv = nn.Conv2d(300, 300, 3, groups=300)
        eoi(conv, {"weight": mask_of(shape, 700)}, depthwise=depthwise, generator=generator)
        taps = conv.weight.detach().flatten(1)
        assert torch.equal(taps.abs().sum(1), torch.ones(300))
        assert torch.equal(taps.abs().amax(1), torch.ones(300))
        assert 100 < int((taps > 0).sum()) < 200  # fair coins are outside with probability < 1e-8
        used = taps.abs().sum(0)
        if depthwise == "center":
            assert int(used[4]) == 300
        else:
            assert float(((used - 300 / 9) ** 2 / (300 / 9)).sum()) < 31.8  # chi^2, 8 degrees of freedom, 1e-4


@pytest.mark.parametrize("make", [nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("groups", [4, 96])
def test_the_released_code_takes_the_groups_for_one_matrix(make, groups, generator):
    conv = make(96, 96, 3, groups=groups, bias=False).double()
    count = conv.weight.numel() // 10
    mask = eoi(conv, {"weight": mask_of(conv.weight.shape, count)}, depthwise="paper-code", generator=generator)
    assert counts_of(mask) == {"weight": count}
    centre = conv.weight.detach()[:, :, 1, 1]  # one orthonormal column for each input (transposed: output) of a group
    torch.testing.assert_close(centre.T @ centre, torch.eye(96 // groups, dtype=torch.float64))
    assert int(conv.weight.count_nonzero()) == int(centre.count_nonzero())
    if groups == 96:
        assert int(centre.count_nonzero()) == 30  # of 96 channels: the square root of the density


def test_the_released_code_needs_as_many_entries_as_its_one_matrix_has_columns():
    model = nn.Sequential(nn.Conv2d(96, 96, 3, groups=96), nn.ConvTranspose2d(96, 48, 3, groups=24))
    layers = find_layers(model)
    assert [eoi_floor(layer, depthwise="paper-code") for layer in layers.values()] == [1, 2]
    assert [eoi_floor(layer, depthwise="center") for layer in layers.values()] == [96, 48]


@pytest.mark.parametrize("count", [0, 1, 5, 7])
def test_below_the_floor_a_partial_isometry_has_as_many_singular_values_as_entries(count, generator):
    model = nn.Sequential(nn.Linear(12, 8), nn.Conv2d(8, 12, 3)).double()
    masks = {"0": mask_of((8, 12), count), "1": mask_of((12, 8, 3, 3), count)}
    result = eoi(model, masks, generator=generator)
    assert counts_of(result) == {"0": count, "1": count}
    for matrix in (model[0].weight, model[1].weight.sum((2, 3))):
        values = singular_values(matrix)
        assert torch.equal(values.round(decimals=12), (torch.arange(8) < count).double())


def test_below_the_floor_a_minimal_mask_has_as_many_as_orthogonality_needs(generator):
    model = nn.Sequential(nn.Linear(12, 8), nn.Conv2d(8, 12, 3)).double()
    masks = {"0": mask_of((8, 12), 3), "1": mask_of((12, 8, 3, 3), 0)}
    assert counts_of(eoi(model, masks, floor="minimal", generator=generator)) == {"0": 8, "1": 8}
    assert is_isometry(model[0].weight)
    assert is_isometry(model[1].weight.sum((2, 3)))


def test_below_the_floor_an_error_names_every_such_layer(generator):
    model = nn.Sequential(nn.Linear(12, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    masks = {"0": mask_of((8, 12), 30), "1": mask_of((8, 8), 7), "2": mask_of((4, 8), 0)}
    with pytest.raises(ValueError, match="'1' has 7 of 8, '2' has 0 of 4"):
        eoi(model, masks, floor="error", generator=generator)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"stop": "later"},
        {"start": "random"},
        {"angle": math.pi},
        {"tap": "corner"},
        {"depthwise": "drop"},
        {"floor": "raise"},
        {"center_density": 1.5},
        {"center_density": "sqrt"},
    ],
    ids=str,
)
def test_bad_options_are_refused_before_any_weight_is_touched(options):
    model = nn.Sequential(nn.Linear(4, 4), nn.Conv2d(4, 4, 3))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match=f"^{next(iter(options))}: "):
        eoi(model, {"0": mask_of((4, 4), 8), "1": mask_of((4, 4, 3, 3), 20)}, **options)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


def test_options_of_the_sampler_reach_it():
    model = nn.Linear(40, 40).double()
    first = {
        str(options): eoi(model, {"weight": mask_of((40, 40), 400)}, generator=seeded(), **options)["weight"]
        for options in ({}, {"stop": "first"}, {"stop": "closest"}, {"start": "permuted"})
    }
    counts = {key: int(mask.sum()) for key, mask in first.items()}
    assert counts["{}"] == counts["{'start': 'permuted'}"] == 400
    assert counts["{'stop': 'first'}"] >= 400
    assert not torch.equal(first["{}"], first["{'start': 'permuted'}"])
    eoi(model, {"weight": mask_of((40, 40), 400)}, angle=math.radians(1), generator=seeded())
    # entries are sums of products of cos 1 degree and sin 1 degree: next to 1 or next to 0
    small = model.weight.detach().abs()
    assert bool(((small < 0.35) | (small > 0.9)).all())


def test_a_full_mask_gives_a_dense_orthogonal_weight(generator):
    model = nn.Sequential(nn.Linear(6, 9), nn.Conv2d(5, 6, 3)).double()
    masks = eoi(model, {"0": mask_of((9, 6), 54), "1": mask_of((6, 5, 3, 3), 270)}, generator=generator)
    assert all(bool(mask.all()) for mask in masks.values())
    assert is_isometry(model[0].weight)
    assert is_isometry(model[1].weight[:, :, 1, 1])


def test_a_tied_weight_is_filled_once_and_stays_tied(generator):
    model = nn.ModuleDict({"a": nn.Linear(6, 6), "b": nn.Linear(6, 6)})
    model["b"].weight = model["a"].weight
    eoi(model, {"a": mask_of((6, 6), 12)}, generator=generator)
    assert model["b"].weight is model["a"].weight
    assert is_isometry(model["b"].weight, tol=1e-6)


def test_consumed_masks_make_room_for_the_new_ones_and_change_no_bit():
    results = []
    for consume in (False, True):
        model = nn.Sequential(nn.Linear(8, 8), nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3))
        filled(model)
        shapes = {name: layer.shape for name, layer in find_layers(model).items()}
        drawn = torch.Generator().manual_seed(0)
        masks = {name: draw(shape, 25, generator=drawn) for name, shape in shapes.items()}
        given = dict(masks)
        made = eoi(model, masks, generator=torch.Generator().manual_seed(1), consume=consume, bias_std=0.1)
        assert (made is masks) == consume
        assert consume or all(masks[name] is mask for name, mask in given.items())
        results.append([*made.values(), *(parameter.detach() for parameter in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def filled(model):
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.normal_(generator=torch.Generator().manual_seed(number))
