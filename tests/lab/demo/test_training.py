import pytest
import torch

from orthosparse.lab.demo import Course, Stack, train
from orthosparse.lab.demo.training import accuracies


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
