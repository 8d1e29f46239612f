import torch
from torch import nn

from orthosparse.schemes.base import base


def test_weights_on_the_mask_keep_their_bits_and_gain_is_the_dense_initializations_business(generator):
    model = nn.Sequential(nn.Linear(5, 4), nn.Conv2d(3, 4, 3))
    before = [module.weight.detach().clone() for module in model]
    masks = {str(i): torch.rand(module.weight.shape, generator=generator) < 0.5 for i, module in enumerate(model)}
    returned = base(model, masks, gain=3.0, generator=generator)
    for index, module in enumerate(model):
        assert torch.equal(returned[str(index)], masks[str(index)])
        assert torch.equal(module.weight, torch.where(masks[str(index)], before[index], 0))


def test_no_negative_zero_and_no_nan_is_left_off_the_mask():
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0, float("nan")], [float("inf"), -2.0]]))
    base(model, {"weight": torch.tensor([[False, False], [False, True]])})
    assert model.weight.tolist() == [[0.0, 0.0], [0.0, -2.0]]
    assert not bool(model.weight[:, 0].signbit().any())
