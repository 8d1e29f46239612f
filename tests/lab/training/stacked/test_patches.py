"""Kernels laid out for patches against torch's convolutions, through windows that are gathered one pixel at a time."""

import pytest
import torch
from torch.nn import functional

from orthosparse.lab.models.stages import Grid
from orthosparse.lab.training.stacked.patches import spread_kernels, tiling_backward, tiling_forward

LAYERS, NETWORKS, IMAGES, INPUTS, OUTPUTS = 2, 2, 2, 3, 5


def windows_of(maps, tiling):
    """Return the window of every patch of maps ``[images, height, width, channels]``, with zeros around them."""
    images, _, _, channels = maps.shape
    rows, columns = tiling.out_size[0] // tiling.patch[0], tiling.out_size[1] // tiling.patch[1]
    windows = maps.new_zeros(images, rows, columns, *tiling.window, channels)
    for row in range(rows):
        for column in range(columns):
            for down in range(tiling.window[0]):
                for across in range(tiling.window[1]):
                    map_row = row * tiling.step[0] - tiling.padding + down
                    map_column = column * tiling.step[1] - tiling.padding + across
                    if 0 <= map_row < tiling.in_size[0] and 0 <= map_column < tiling.in_size[1]:
                        windows[:, row, column, down, across] = maps[:, map_row, map_column]
    return windows.flatten(3)


def by_patches(maps, laid, tiling):
    """Return the maps that patch products give, ``[images, height, width, channels]``."""
    found = windows_of(maps, tiling) @ laid
    images, rows, columns, _ = found.shape
    parts = found.view(images, rows, columns, *tiling.patch, -1)
    return parts.permute(0, 1, 3, 2, 4, 5).reshape(images, *tiling.out_size, -1)


def laid_out(kernels, tiling, stride):
    layers, members, outputs, _, _, inputs = kernels.shape
    window, patch = tiling.window[0] * tiling.window[1], tiling.patch[0] * tiling.patch[1]
    out = kernels.new_zeros(layers, members, window * inputs, patch * outputs)
    spread_kernels(kernels, tiling, stride, out)
    return out


def drawn(grid, generator):
    """Return random kernels ``[layers, members, out, side, side, in]``, and samples in torch's shape."""
    shape = (LAYERS, NETWORKS, OUTPUTS, grid.kernel, grid.kernel, INPUTS)
    kernels = torch.randn(shape, generator=generator, dtype=torch.float64)
    maps = (LAYERS, NETWORKS, IMAGES, INPUTS, grid.height, grid.width)
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
    tiling, (kernels, maps) = tiling_forward(grid, patch), drawn(grid, generator)
    laid = laid_out(kernels, tiling, grid.stride)
    for layer in range(LAYERS):
        for network in range(NETWORKS):
            x = maps[layer, network]
            found = by_patches(x.permute(0, 2, 3, 1), laid[layer, network], tiling)
            check_close(found, convolved(x, kernels[layer, network], grid))


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
def test_flipped_kernels_give_the_gradient_of_the_samples(grid, patch, generator):
    tiling, (kernels, maps) = tiling_backward(grid, patch), drawn(grid, generator)
    laid = laid_out(kernels.flip(3, 4).transpose(2, 5), tiling, -grid.stride)
    for layer in range(LAYERS):
        for network in range(NETWORKS):
            x = maps[layer, network].requires_grad_()
            y = convolved(x, kernels[layer, network], grid)
            grad = torch.randn(y.shape, generator=generator, dtype=torch.float64)
            (expected,) = torch.autograd.grad(y, x, grad)
            check_close(by_patches(grad.permute(0, 2, 3, 1), laid[layer, network], tiling), expected)


@pytest.mark.parametrize(("grid", "patch"), CASES)
def test_only_what_an_output_sees_is_written_and_written_anew(grid, patch, generator):
    tiling, (kernels, _) = tiling_forward(grid, patch), drawn(grid, generator)
    once = laid_out(kernels, tiling, grid.stride)
    pixels = patch[0] * patch[1]
    assert int((once != 0).sum()) == pixels * kernels.numel()
    again = once.clone()
    spread_kernels(2 * kernels, tiling, grid.stride, again)
    assert torch.equal(again, 2 * once)


def test_patches_fill_a_map_and_kernels_know_their_sizes_by_name():
    tiling = tiling_forward(Grid(4, 6, 3, 1), (2, 3))
    assert tiling.patches == 4
    assert tiling.constants() == {
        "HEIGHT": 4, "WIDTH": 6, "OUT_HEIGHT": 4, "OUT_WIDTH": 6, "PATCH_HEIGHT": 2, "PATCH_WIDTH": 3,
        "STEP_HEIGHT": 2, "STEP_WIDTH": 3, "WINDOW_HEIGHT": 4, "WINDOW_WIDTH": 5, "PADDING": 1,
    }  # fmt: skip
