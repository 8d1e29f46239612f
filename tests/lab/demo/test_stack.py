import copy

import pytest
import torch
from torch.nn.functional import cross_entropy

from orthosparse.lab.data import Loader
from orthosparse.lab.demo import Stack
from orthosparse.lab.demo.training import losses_of


@pytest.fixture
def batches(digits):
    return list(Loader(digits.train, batch=32, seed=1).epoch(0))[:4]


def test_the_stack_computes_what_the_networks_compute(starts, batches):
    images, labels = batches[0]
    networks = [network.double() for network in starts.values()]
    logits = Stack(networks)(images.double())
    apart = torch.stack([network(images.double()) for network in networks])
    torch.testing.assert_close(logits, apart, rtol=1e-12, atol=1e-12)
    losses = torch.stack([cross_entropy(each, labels) for each in apart])
    torch.testing.assert_close(losses_of(logits, labels), losses)


def test_training_the_stack_trains_each_network_as_torch_would_train_it_alone(starts, batches):
    """The masks of the library, torch's optimizer with decay and momentum, four steps, in float64."""
    networks = [copy.deepcopy(network).double() for network in starts.values()]
    stack = Stack(networks)
    settings = {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-2}
    together = torch.optim.SGD(stack.parameters(), **settings)
    apart = [torch.optim.SGD(network.parameters(), **settings) for network in networks]
    for images, labels in batches:
        together.zero_grad()
        losses_of(stack(images.double()), labels).sum().backward()
        together.step()
        for network, optimizer in zip(networks, apart, strict=True):
            optimizer.zero_grad()
            cross_entropy(network(images.double()), labels).backward()
            optimizer.step()
    images = batches[0][0].double()
    torch.testing.assert_close(stack(images), torch.stack([network(images) for network in networks]))


def test_weights_off_the_masks_have_no_say(starts, batches):
    stack = Stack(list(starts.values()))
    before = stack(batches[0][0])
    with torch.no_grad():
        for part in ("first", "inner", "last"):
            getattr(stack, part).add_(1 - getattr(stack, f"{part}_mask"))
    assert torch.equal(stack(batches[0][0]), before)
