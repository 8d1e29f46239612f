import pytest
import torch

from orthosparse.lab.data import Loader
from orthosparse.lab.demo.isometries import measure


@pytest.fixture
def images(digits):
    return next(Loader(digits.test, batch=3, train=False).epoch(0))[0]


def test_the_spectra_are_those_of_the_product_of_all_layers(starts, small, images):
    """J = W_L D_{L-1} W_{L-1} ... D_1 W_1 with D the slopes 1 - tanh^2, written out."""
    found = measure(starts, images, small.depth)
    for name, network in starts.items():
        signal, jacobian, means = images.double().flatten(1), None, []
        for module in network.double():
            if isinstance(module, torch.nn.Linear):
                weight = module.weight.detach()
                jacobian = weight.expand(3, *weight.shape) if jacobian is None else weight @ jacobian
                signal = module(signal).detach()
                means.append(float(torch.linalg.svdvals(jacobian).mean()))
            elif isinstance(module, torch.nn.Tanh):
                signal = signal.tanh()
                jacobian = (1 - signal.square()).unsqueeze(-1) * jacobian
        assert found[name].depths == [1, 2, 3, 4, 5, 6]
        assert found[name].means == pytest.approx(means)
        torch.testing.assert_close(
            found[name].values.sort().values, torch.linalg.svdvals(jacobian).flatten().sort().values
        )


def test_orthogonal_starts_keep_the_signal_and_base_loses_it(starts, small, images):
    found = measure(starts, images, small.depth)
    assert found["dense"].mean == pytest.approx(1, abs=0.1)
    assert found["eoi"].mean == pytest.approx(1, abs=0.1)
    assert found["base"].max < 0.1


def test_the_networks_stay_in_single_precision(starts, small, images):
    measure(starts, images, small.depth)
    assert all(parameter.dtype == torch.float32 for network in starts.values() for parameter in network.parameters())
