import pytest
import torch

from orthosparse import init, isometry
from orthosparse.lab.data import Loader
from orthosparse.lab.demo import scaled_digits


def test_the_first_layer_of_an_orthogonal_network_gets_the_variance_that_tanh_keeps(generator):
    data, point = scaled_digits(), isometry.critical_point("tanh")
    ((images, _),) = Loader(data.train, batch=len(data.train), train=False).epoch(0)
    weight = init.orthogonal_(torch.empty(64, 64), gain=point.sigma_w, generator=generator)
    assert (images.flatten(1) @ weight.T).square().mean() == pytest.approx(point.q, rel=0.01)
    assert len(data.train) == 1437
