import copy

import pytest
import torch
from torch.nn.functional import cross_entropy

from orthosparse.lab.data import Loader
from orthosparse.lab.demo.training import Course, Stack, accuracies, losses_of, train


def test_training_lowers_the_loss_of_what_can_be_trained_and_tells_every_epoch(starts, digits):
    told = []
    history = train(
        Stack(list(starts.values())), digits, Course(epochs=2, rate=0.03), 1, lambda *args: told.append(args)
    )
    losses = dict(zip(starts, history.losses[-1], strict=True))
    assert losses["dense"] < history.losses[0][0]
    assert losses["dense"] < losses["base"]
    assert told == [(epoch, history.losses[epoch], history.accuracies[epoch]) for epoch in range(2)]


def test_the_order_of_the_samples_follows_from_the_seed(starts, digits):
    stacks = [Stack(list(starts.values())) for _ in range(3)]
    one, same, other = (train(s, digits, Course(epochs=1), seed) for s, seed in zip(stacks, (1, 1, 2), strict=True))
    assert one == same
    assert one.losses != other.losses


def test_an_accuracy_is_the_share_of_test_images_that_are_right(starts, digits):
    stack = Stack(list(starts.values()))
    with torch.no_grad():  # every network always says "7"
        stack.last.zero_()
        stack.biases[2].zero_()[..., 7] = 1
    share = (digits.test.labels == 7).double().mean()
    torch.testing.assert_close(accuracies(stack, digits), share.expand(4))


@pytest.mark.parametrize("name", ["epochs", "rate", "batch"])
def test_a_course_needs_something_to_do(name):
    with pytest.raises(ValueError, match=f"{name}: expected more than 0; got 0"):
        Course(**{name: 0})


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
