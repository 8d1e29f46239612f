from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from orthosparse.lab.models.stages import Grid, Stage
from orthosparse.lab.training.stacked.operations import padded, product_of

GRIDS = [Grid(4, 5, 3, 1), Grid(5, 6, 3, 2), Grid(4, 4, 1, 1), Grid(6, 6, 5, 2), Grid(2, 2, 3, 1)]
GRIDS += [replace(grid, circular=False) for grid in GRIDS] + [Grid(4, 5, 1, 1, padding=1, circular=False)]


def test_padded_positions_are_the_pixels_that_padding_would_copy():
    grid, values = Grid(4, 5, 3, 1), torch.arange(20.0).view(1, 1, 4, 5)
    wide = functional.pad(values, (1, 1, 1, 1), mode="circular")
    assert torch.equal(values.flatten()[padded(grid)], wide.flatten())


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_products_are_convolutions_and_their_gradients(grid, generator):
    stage = Stage(("conv",), 3, 4, grid)
    product, pad = product_of(stage), grid.pad
    kernel = torch.randn(2, 4, 3, grid.kernel, grid.kernel, generator=generator, dtype=torch.float64)
    maps = torch.randn(2, 5, 3, grid.height, grid.width, generator=generator, dtype=torch.float64)
    weight = torch.stack([stage.rows_of(one) for one in kernel])
    x = maps.permute(0, 1, 3, 4, 2).flatten(2).contiguous()
    out = torch.empty(2, 5, stage.features[1], dtype=torch.float64)
    product.forward(x, weight, out)
    grad = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    found = torch.empty(1, *weight.shape, dtype=torch.float64)
    product.weight_grad(grad.unsqueeze(0), x.unsqueeze(0), found)
    back = product.backward(grad, product.transposed(weight.unsqueeze(0))[0])
    for member in range(2):
        images, filters = maps[member].requires_grad_(), kernel[member].requires_grad_()
        wide = functional.pad(images, (pad, pad, pad, pad), mode="circular" if grid.circular else "constant")
        expected = functional.conv2d(wide, filters, stride=grid.stride)
        torch.testing.assert_close(out[member], expected.permute(0, 2, 3, 1).flatten(1))
        given = grad[member].view(5, grid.out_height, grid.out_width, 4).permute(0, 3, 1, 2)
        by_image, by_filter = torch.autograd.grad(expected, (images, filters), given)
        torch.testing.assert_close(back[member], by_image.permute(0, 2, 3, 1).flatten(1))
        torch.testing.assert_close(stage.weight_of(found[0, member]), by_filter)
