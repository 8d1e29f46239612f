import math

import pytest
import torch
from torch import nn

from orthosparse.layers import find_layers
from orthosparse.masks import draw
from orthosparse.schemes.ai import ai


def random_model(*modules, generator):
    model = nn.Sequential(*modules)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return model


def masks_of(model, density, generator):
    return {
        name: draw(layer.shape, round(density * layer.numel), generator=generator)
        for name, layer in find_layers(model).items()
    }


def loss_of(matrix, gain=1.0):
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return torch.linalg.norm(gram - gain**2 * torch.eye(len(gram), dtype=matrix.dtype))


def descended(weight, mask, gain, iterations):
    """The plain loop, by autograd: the masked matrix after so many steps, and all losses on the way."""
    weight = weight.detach().clone().requires_grad_()
    optimizer, losses = torch.optim.SGD([weight], lr=0.1), []
    for _ in range(iterations):
        optimizer.zero_grad()
        loss = loss_of(weight * mask, gain)
        losses.append(float(loss.detach()))
        loss.backward()
        optimizer.step()
    return (weight * mask).detach(), losses


@pytest.mark.parametrize("gain", [1.0, 1.3])
def test_steps_are_those_of_plain_gradient_descent_by_autograd(gain, generator):
    modules = [nn.Linear(40, 24), nn.Linear(16, 40), nn.Conv2d(12, 20, 3), nn.Conv2d(24, 24, 3, groups=2)]
    model = random_model(*modules, generator=generator).double()
    masks = masks_of(model, 0.3, generator)
    parts = {"0": 1, "1": 1, "2": 1, "3": 2}  # matrices in each
    starts = {name: layer.parameter().detach().clone() for name, layer in find_layers(model).items()}
    ai(model, masks, gain=gain, iterations=12, generator=generator)
    for index, module in enumerate(model):
        name = str(index)
        pieces = zip(
            starts[name].chunk(parts[name]),
            masks[name].chunk(parts[name]),
            module.weight.detach().chunk(parts[name]),
            strict=True,
        )
        for start, mask, end in pieces:
            expected, losses = descended(start.flatten(1), mask.flatten(1), gain, 12)
            assert losses == sorted(losses, reverse=True)  # so the last state is the best one
            assert torch.allclose(end.flatten(1), expected, rtol=0, atol=1e-12)


def test_the_blocks_of_a_split_convolution_are_matrices_of_their_own(generator):
    model = random_model(nn.Conv1d(6, 12, 3), generator=generator).double()
    mask, start = draw((12, 6, 3), 150, generator=generator), model[0].weight.detach().clone()
    ai(model, {"0": mask}, layers=find_layers(model, split={"0": (8, 4)}), iterations=5)
    pieces = zip(*(tensor.flatten(1).split((8, 4)) for tensor in (start, mask, model[0].weight)), strict=True)
    for before, active, after in pieces:
        assert torch.allclose(after, descended(before, active, 1.0, 5)[0], rtol=0, atol=1e-12)


def test_transposed_convolutions_are_matrices_of_outputs_by_inputs_and_taps(generator):
    model = random_model(nn.ConvTranspose2d(6, 4, 3), generator=generator).double()
    mask = draw((6, 4, 3, 3), 150, generator=generator)
    start = model[0].weight.detach().clone()
    ai(model, {"0": mask}, iterations=5)
    matrix = lambda tensor: tensor.transpose(0, 1).flatten(1)  # noqa: E731
    expected, _ = descended(matrix(start), matrix(mask), 1.0, 5)
    assert torch.allclose(matrix(model[0].weight.detach()), expected, rtol=0, atol=1e-12)


def test_it_ends_where_the_plain_loop_ends_or_lower(generator):
    model = random_model(nn.Linear(64, 64), nn.Conv2d(16, 16, 3), generator=generator)
    masks = masks_of(model, 0.15, generator)
    starts = {name: layer.parameter().detach().clone() for name, layer in find_layers(model).items()}
    ai(model, masks, iterations=1000, generator=generator)
    for name, layer in find_layers(model).items():
        _, losses = descended(starts[name].flatten(1), masks[name].flatten(1), 1.0, 1000)
        assert float(loss_of(layer.parameter().detach().flatten(1))) <= losses[-1] * 1.01


def test_an_orthogonal_start_is_returned_as_it_is(generator):
    model = nn.Linear(8, 8, bias=False)
    nn.init.eye_(model.weight)
    for mask in (torch.ones(8, 8, dtype=torch.bool), torch.eye(8, dtype=torch.bool)):
        ai(model, {"weight": mask}, iterations=300)
        assert torch.equal(model.weight, torch.eye(8))
    # One step of the usual length would lead away from a start that is orthogonal but for rounding.
    start = nn.init.orthogonal_(model.weight, generator=generator).detach().clone()
    ai(model, {"weight": torch.ones(8, 8, dtype=torch.bool)}, iterations=300)
    assert torch.equal(model.weight, start)


def test_it_stops_when_the_loss_no_longer_falls(generator):
    # With one weight the steps go to and fro around 1; with an empty row the loss has a floor. Neither may run on.
    model = random_model(nn.Linear(1, 1), *[nn.Linear(6, 6) for _ in range(3)], generator=generator)
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[0] = False
    ai(model, {"0": torch.tensor([[True]]), "1": mask, "2": mask, "3": mask}, iterations=10**9)
    for module in model[1:]:
        assert float(loss_of(module.weight.detach())) == pytest.approx(1.0, abs=1e-4)  # one singular value is 0


def test_no_iterations_leave_the_masked_start(generator):
    model = random_model(nn.Linear(5, 3), generator=generator)
    start, mask = model[0].weight.detach().clone(), draw((3, 5), 7, generator=generator)
    ai(model, {"0": mask}, iterations=0)
    assert torch.equal(model[0].weight, start * mask)


def test_an_empty_mask_gives_an_empty_layer(generator):
    model = random_model(nn.Linear(5, 3), nn.Linear(5, 3), generator=generator)
    ai(model, {"0": torch.zeros(3, 5, dtype=torch.bool), "1": torch.ones(3, 5, dtype=torch.bool)}, iterations=100)
    assert int(model[0].weight.count_nonzero()) == 0
    assert float(loss_of(model[1].weight.detach())) < 0.5


def test_weights_that_are_not_finite_are_refused_by_layer(generator):
    model = random_model(nn.Linear(5, 3), nn.Linear(5, 3), generator=generator)
    with torch.no_grad():
        model[1].weight[0, 0] = math.nan
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match="model: expected finite weights to start from; '1' has NaN"):
        ai(model, masks_of(model, 0.5, generator))
    assert all(torch.equal(*pair) for pair in zip(before[:2], list(model.parameters())[:2], strict=True))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"iterations": -1}, ValueError),
        ({"iterations": 1.5}, TypeError),
        ({"learning_rate": math.inf}, ValueError),
        ({"learning_rate": "fast"}, TypeError),
        ({"tolerance": -1e-3}, ValueError),
        ({"tolerance": True}, TypeError),
    ],
    ids=str,
)
def test_bad_options_are_refused(options, error):
    with pytest.raises(error, match=f"^{next(iter(options))}: expected"):
        ai(nn.Linear(2, 2), {"weight": torch.ones(2, 2, dtype=torch.bool)}, **options)
