import pytest
import torch

from orthosparse import BlockLinear


@pytest.mark.parametrize(("features", "blocks", "size"), [((48, 32), 1, 8), ((48, 40), 1, 16), ((32, 32), 5, 16)])
def test_impossible_sizes_and_counts_are_refused(features, blocks, size):
    with pytest.raises(ValueError, match=r"size: expected|blocks: expected"):
        BlockLinear(*features, blocks, size)


def test_autocast_computes_in_its_type():
    layer = BlockLinear(32, 32, 2, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.ones(2, 32)).dtype == torch.bfloat16


def test_a_layer_of_half_precision_computes_in_it(generator):
    layer = BlockLinear(32, 32, 3, 16, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.values.normal_(generator=generator)
    x = torch.randn(4, 32, generator=generator).bfloat16()
    torch.testing.assert_close(layer(x), x @ layer.weight.T, rtol=2e-2, atol=2e-2)


@pytest.mark.gpu
def test_a_layer_moves_to_a_gpu_and_back(generator):
    layer = BlockLinear(128, 64, 3, 32)
    with torch.no_grad():
        layer.values.normal_(generator=generator)
    x = torch.randn(4, 128, generator=generator)
    expected = layer(x)
    torch.testing.assert_close(layer.cuda()(x.cuda()).cpu(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(layer.cpu()(x), expected)
