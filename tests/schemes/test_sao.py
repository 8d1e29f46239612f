import re

import pytest
import torch
from torch import nn

from orthosparse.distributions.dense_ends import dense_ends
from orthosparse.layers import find_layers
from orthosparse.schemes.sao import sao


def mask_of(shape, density):
    count = round(density * torch.Size(shape).numel())
    return (torch.arange(torch.Size(shape).numel()) < count).view(shape)


def masks_at(model, density):
    return {name: mask_of(layer.shape, density) for name, layer in find_layers(model).items()}


def is_isometry(matrix, tol=1e-12):
    values = torch.linalg.svdvals(matrix.detach().double())
    return bool((values - 1).abs().max() < tol)


@pytest.mark.parametrize(
    ("shape", "density", "by_row", "by_col"),
    # out x in, ones in a row = density * in, ones in a column = density * out
    [
        ((16, 16), 1 / 4, 4, 4),
        ((8, 16), 1 / 4, 4, 2),
        ((16, 8), 1 / 4, 2, 4),
        ((16, 16), 1 / 16, 1, 1),
        ((10, 64), 1 / 2, 32, 5),
    ],
)
def test_degrees_are_exact_and_the_matrix_orthogonal(shape, density, by_row, by_col, generator):
    model = nn.Linear(shape[1], shape[0]).double()
    mask = sao(model, {"weight": mask_of(shape, density)}, generator=generator)["weight"]
    assert mask.sum(1).tolist() == [by_row] * shape[0]
    assert mask.sum(0).tolist() == [by_col] * shape[1]
    assert is_isometry(model.weight)
    assert bool((model.weight[~mask] == 0).all())
    assert bool((model.weight[mask] != 0).all())


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(8, 16, 3),
        nn.Conv2d(8, 8, 5),
        nn.Conv2d(8, 8, (1, 3)),
        nn.Conv1d(8, 8, 4),
        nn.Conv3d(4, 8, 3),
        nn.Conv2d(8, 8, 1),
        nn.ConvTranspose2d(8, 16, 3),
        nn.Conv2d(8, 16, 3, groups=2),
    ],
    ids=str,
)
def test_kernels_are_kept_whole_and_hold_an_orthogonal_matrix_at_their_center(conv, generator):
    conv = conv.double()
    layer = find_layers(conv)["weight"]
    mask = sao(conv, {"weight": mask_of(layer.shape, 1 / 4)}, generator=generator)["weight"]
    center = 0
    for side in layer.shape[2:]:
        center = center * side + (side - 1) // 2
    stacks = zip(layer.matrices(conv.weight.detach())[0], layer.matrices(mask)[0], strict=True)
    for matrix, active in stacks:
        assert is_isometry(matrix[:, :, center])
        assert torch.equal(active, active[:, :, :1].expand_as(active))
        assert torch.equal(active[:, :, 0], matrix[:, :, center] != 0)
        assert int(matrix.count_nonzero()) == int(active[:, :, 0].sum())
    assert int(mask.sum()) == layer.numel // 4


def test_a_full_mask_gives_a_dense_layer_whatever_its_sides(generator):
    model = nn.Sequential(nn.Conv2d(3, 7, 3), nn.Linear(5, 11)).double()
    masks = sao(model, masks_at(model, 1.0), generator=generator)
    assert all(bool(mask.all()) for mask in masks.values())
    assert is_isometry(model[0].weight[:, :, 1, 1])
    assert int(model[0].weight.count_nonzero()) == 21
    assert is_isometry(model[1].weight)


def test_the_profile_of_dense_ends_is_served_exactly(generator):
    model = nn.Sequential(nn.Linear(20, 16), *[nn.Linear(16, 16) for _ in range(3)], nn.Linear(16, 10)).double()
    asked = dense_ends(model, 0.125, generator=generator)
    masks = sao(model, asked, generator=generator)
    assert {name: int(mask.sum()) for name, mask in masks.items()} == {
        name: int(mask.sum()) for name, mask in asked.items()
    }
    assert all(is_isometry(module.weight) for module in model)


def test_fused_blocks_are_regular_each(generator):
    attention = nn.MultiheadAttention(8, 2).double()
    mask = sao(attention, masks_at(attention, 0.25), generator=generator)["in_proj_weight"]
    for weight, active in zip(attention.in_proj_weight.chunk(3), mask.chunk(3), strict=True):
        assert is_isometry(weight)
        assert active.sum(0).tolist() == active.sum(1).tolist() == [2] * 8


def test_the_blocks_of_a_split_convolution_are_regular_each(generator):
    model = nn.Sequential(nn.Conv2d(8, 24, 3)).double()
    layers = find_layers(model, split={"0": 3})
    mask = sao(model, {"0": mask_of((24, 8, 3, 3), 0.25)}, layers=layers, generator=generator)["0"]
    for weight, active in zip(model[0].weight.chunk(3), mask.chunk(3), strict=True):
        assert is_isometry(weight[:, :, 1, 1])
        assert active.sum(0).tolist() == active.sum(1).tolist() == [[[2] * 3] * 3] * 8


def test_the_doubling_makes_a_relu_network_a_linear_isometry(generator):
    model = nn.Sequential(
        nn.Linear(8, 24, bias=False),
        nn.ReLU(),
        nn.Linear(24, 24, bias=False),
        nn.ReLU(),
        nn.Linear(24, 48, bias=False),
        nn.ReLU(),
        nn.Linear(48, 48, bias=False),
        nn.ReLU(),
        nn.Linear(48, 24, bias=False),
    ).double()
    masks = masks_at(model, 0.25)
    masks["0"][:] = True
    result = sao(model, masks, activation="relu", generator=generator)
    assert {name: int(mask.sum()) for name, mask in result.items()} == {
        name: int(mask.sum()) for name, mask in masks.items()
    }
    x, y = torch.randn(2, 5, 8, generator=generator, dtype=torch.float64)
    assert torch.allclose(model(x).norm(dim=1), x.norm(dim=1), rtol=1e-12)
    assert torch.allclose(model(x - 2 * y), model(x) - 2 * model(y), atol=1e-12)
    for middle in (model[2], model[4], model[6]):
        (s, minus), (also_minus, also) = (rows.chunk(2, 1) for rows in middle.weight.chunk(2))
        assert torch.equal(s, also)
        assert torch.equal(s, -minus)
        assert torch.equal(s, -also_minus)
        assert is_isometry(s)


def test_the_doubling_keeps_norms_through_a_convolutional_relu_network(generator):
    circular = {"padding": 1, "padding_mode": "circular", "bias": False}
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, **circular),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, **circular),
        nn.ReLU(),
        nn.Conv2d(16, 8, 3, **circular),
    ).double()
    masks = masks_at(model, 0.5)
    masks["0"][:] = True
    sao(model, masks, activation="relu", generator=generator)
    x = torch.randn(4, 3, 6, 6, generator=generator, dtype=torch.float64)
    assert torch.allclose(model(x).flatten(1).norm(dim=1), x.flatten(1).norm(dim=1), rtol=1e-12)


def test_a_density_that_the_shape_does_not_allow_is_refused_with_those_that_work():
    model = nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 8))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    message = (
        "masks: '1': SAO needs a degree that divides 12, the long side of 8 x 12, such that 8 * degree / 12 is an "
        "integer; density 0.333333 is degree 4; the nearest densities that work are 0.25 (degree 3) and 0.5 (degree 6)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        sao(model, {"0": mask_of((12, 12), 1 / 4), "1": mask_of((8, 12), 1 / 3)})
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("density", "named"), [(0.3, "0.25 (degree 3) and 0.333333 (degree 4)"), (0.0, "0.0833333 (degree 1)")]
)
def test_the_nearest_densities_are_named_on_both_sides_where_there_are_two(density, named):
    with pytest.raises(ValueError, match=re.escape(f"the nearest densities that work are {named}")):
        sao(nn.Linear(12, 12), {"weight": mask_of((12, 12), density)})


def test_the_nearest_degree_is_taken_where_that_is_asked(generator):
    model = nn.Linear(12, 12).double()
    for density, degree in [(0.3, 4), (0.26, 3), (0.0, 1), (0.9, 12), (0.44, 6)]:
        mask = sao(model, {"weight": mask_of((12, 12), density)}, degree="nearest", generator=generator)["weight"]
        assert int(mask.sum()) == 12 * degree
        assert is_isometry(model.weight)


def test_a_number_is_the_degree_of_every_layer_that_is_not_full(generator):
    model = nn.Sequential(nn.Linear(20, 16), nn.Linear(16, 16), nn.Conv2d(8, 16, 3))
    masks = {"0": mask_of((16, 20), 1.0), "1": mask_of((16, 16), 0.2), "2": mask_of((16, 8, 3, 3), 0.2)}
    result = sao(model, masks, degree=4, generator=generator)
    assert {name: int(mask.sum()) for name, mask in result.items()} == {"0": 320, "1": 64, "2": 9 * 8 * 4}


@pytest.mark.parametrize("degree", [5, 0, -4, 17])
def test_a_number_that_is_no_degree_of_the_shape_is_refused(degree):
    with pytest.raises(ValueError, match="SAO needs a degree that divides 16"):
        sao(nn.Linear(16, 16), {"weight": mask_of((16, 16), 0.25)}, degree=degree)


@pytest.mark.parametrize(
    ("degree", "error"), [("most", ValueError), (2.0, TypeError), (True, TypeError), (None, TypeError)]
)
def test_other_values_for_the_degree_are_refused(degree, error):
    with pytest.raises(error, match=r"^degree: expected an integer or one of exact, nearest"):
        sao(nn.Linear(4, 4), {"weight": mask_of((4, 4), 0.5)}, degree=degree)


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="activation: expected one of linear, relu, tanh; got 'selu'"):
        sao(nn.Linear(4, 4), {"weight": mask_of((4, 4), 0.5)}, activation="selu")


def test_the_doubling_of_odd_sides_is_refused():
    model = nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 4))
    with pytest.raises(ValueError, match="'0': the doubling for ReLU needs even sides; this matrix has 9 x 4"):
        sao(model, masks_at(model, 1.0), activation="relu")


def test_the_smallest_degree_of_a_wide_layer_is_a_signed_permutation(generator):
    model = nn.Linear(2048, 2048, bias=False)
    mask = sao(model, {"weight": mask_of((2048, 2048), 1 / 2048)}, generator=generator)["weight"]
    assert torch.equal(model.weight.abs(), mask.float())
