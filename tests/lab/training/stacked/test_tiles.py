"""Kernels laid out for patches against torch's convolutions, through windows that are gathered one pixel at a time."""

import pytest
import torch
from torch.nn import functional

from orthosparse.lab.models.stages import Grid
from orthosparse.lab.training.stacked.tiles import spread_kernels, tiling_backward, tiling_forward

LAYERS, MEMBERS, PICTURES, INPUTS, OUTPUTS = 2, 2, 2, 3, 5


def windows_of(maps, view):
    """Return what every patch sees of maps ``[pictures, height, width, channels]``, with zeros around them."""
    pictures, _, _, channels = maps.shape
    rows, columns = view.given[0] // view.patch[0], view.given[1] // view.patch[1]
    seen = maps.new_zeros(pictures, rows, columns, *view.window, channels)
    for row in range(rows):
        for column in range(columns):
            for down in range(view.window[0]):
                for across in range(view.window[1]):
                    line = row * view.step[0] - view.before + down
                    place = column * view.step[1] - view.before + across
                    if 0 <= line < view.seen[0] and 0 <= place < view.seen[1]:
                        seen[:, row, column, down, across] = maps[:, line, place]
    return seen.flatten(3)


def by_patches(maps, laid, view):
    """Return the maps that patch products give, ``[pictures, height, width, channels]``."""
    found = windows_of(maps, view) @ laid
    pictures, rows, columns, _ = found.shape
    parts = found.view(pictures, rows, columns, *view.patch, -1)
    return parts.permute(0, 1, 3, 2, 4, 5).reshape(pictures, *view.given, -1)


def laid_out(kernels, view, stride):
    layers, members, outputs, _, _, inputs = kernels.shape
    window, patch = view.window[0] * view.window[1], view.patch[0] * view.patch[1]
    out = kernels.new_zeros(layers, members, window * inputs, patch * outputs)
    spread_kernels(kernels, view, stride, out)
    return out


def drawn(grid, generator):
    """Return random kernels ``[layers, members, out, side, side, in]``, and samples in torch's shape."""
    shape = (LAYERS, MEMBERS, OUTPUTS, grid.kernel, grid.kernel, INPUTS)
    kernels = torch.randn(shape, generator=generator, dtype=torch.float64)
    maps = (LAYERS, MEMBERS, PICTURES, INPUTS, grid.height, grid.width)
    return kernels, torch.randn(maps, generator=generator, dtype=torch.float64)


def convolved(x, kernel, grid):
    return functional.conv2d(x, kernel.permute(0, 3, 1, 2), stride=grid.stride, padding=grid.kernel // 2)


def check_close(found, expected):
    torch.testing.assert_close(found.permute(0, 3, 1, 2), expected, rtol=1e-12, atol=1e-12)


CASES = [
    (Grid(4, 6, 3, 1), (1, 1)),
    (Grid(4, 6, 3, 1), (2, 2)),
    (Grid(4, 6, 3, 1), (1, 2)),
    (Grid(4, 6, 3, 1), (2, 3)),
    (Grid(5, 3, 3, 1), (1, 1)),
    (Grid(4, 6, 5, 1), (2, 1)),
    (Grid(4, 6, 1, 1), (2, 2)),
    (Grid(4, 6, 3, 2), (1, 1)),
    (Grid(4, 8, 3, 2), (2, 2)),
    (Grid(5, 7, 3, 2), (1, 1)),
    (Grid(4, 6, 1, 2), (1, 1)),
    (Grid(5, 7, 1, 2), (1, 2)),
]


@pytest.mark.parametrize(("grid", "patch"), CASES)
def test_products_of_windows_and_kernels_that_are_laid_out_are_the_convolution(grid, patch, generator):
    view, (kernels, maps) = tiling_forward(grid, patch), drawn(grid, generator)
    laid = laid_out(kernels, view, grid.stride)
    for layer in range(LAYERS):
        for member in range(MEMBERS):
            x = maps[layer, member]
            found = by_patches(x.permute(0, 2, 3, 1), laid[layer, member], view)
            check_close(found, convolved(x, kernels[layer, member], grid))


BACKWARD = [
    (Grid(4, 6, 3, 1), (1, 1)),
    (Grid(4, 6, 3, 1), (2, 2)),
    (Grid(4, 6, 3, 1), (1, 2)),
    (Grid(5, 3, 3, 1), (1, 1)),
    (Grid(4, 6, 1, 1), (1, 1)),
    (Grid(4, 6, 3, 2), (2, 2)),
    (Grid(4, 6, 1, 2), (2, 2)),
    (Grid(2, 2, 3, 2), (2, 2)),
]


@pytest.mark.parametrize(("grid", "patch"), BACKWARD)
def test_turned_round_they_give_the_gradient_of_the_samples(grid, patch, generator):
    view, (kernels, maps) = tiling_backward(grid, patch), drawn(grid, generator)
    laid = laid_out(kernels.flip(3, 4).transpose(2, 5), view, -grid.stride)
    for layer in range(LAYERS):
        for member in range(MEMBERS):
            x = maps[layer, member].requires_grad_()
            given = convolved(x, kernels[layer, member], grid)
            grad = torch.randn(given.shape, generator=generator, dtype=torch.float64)
            (expected,) = torch.autograd.grad(given, x, grad)
            check_close(by_patches(grad.permute(0, 2, 3, 1), laid[layer, member], view), expected)


@pytest.mark.parametrize(("grid", "patch"), CASES)
def test_only_what_an_output_sees_is_written_and_written_anew(grid, patch, generator):
    view, (kernels, _) = tiling_forward(grid, patch), drawn(grid, generator)
    once = laid_out(kernels, view, grid.stride)
    pixels = patch[0] * patch[1]
    assert int((once != 0).sum()) == pixels * kernels.numel()
    again = once.clone()
    spread_kernels(2 * kernels, view, grid.stride, again)
    assert torch.equal(again, 2 * once)


def test_patches_fill_a_map_and_kernels_know_their_sizes_by_name():
    view = tiling_forward(Grid(4, 6, 3, 1), (2, 3))
    assert view.patches == 4
    assert view.constants() == {
        "HEIGHT": 4, "WIDE": 6, "OUT_HEIGHT": 4, "OUT_WIDE": 6, "DOWN": 2, "ACROSS": 3,
        "STEP_DOWN": 2, "STEP_ACROSS": 3, "LINES": 4, "COLUMNS": 5, "BEFORE": 1,
    }  # fmt: skip
