import torch

from orthosparse.lab.demo.training import train
from orthosparse.lab.training import Recipe


def trained(starts, small, digits, seed=1, announce=None, **changes):
    recipe = Recipe(**{"epochs": 1, "lr": 0.03, "batch": 64, **changes})
    return train(starts, small, recipe, digits, seed, announce)


def test_training_lowers_the_loss_of_what_can_be_trained_and_tells_every_epoch(starts, small, digits):
    reported = []
    history = trained(starts, small, digits, epochs=2, announce=lambda *args: reported.append(args))
    losses = dict(zip(starts, history.losses[-1], strict=True))
    assert losses["dense"] < history.losses[0][0]
    assert losses["dense"] < losses["base"]
    assert reported == [(epoch, history.losses[epoch], history.accuracies[epoch]) for epoch in range(2)]


def test_the_order_of_the_samples_follows_from_the_seed_and_the_networks_stay_as_they_are(starts, small, digits):
    before = {name: network.state_dict()["fc2.bias"].clone() for name, network in starts.items()}
    one, same, other = (trained(starts, small, digits, seed) for seed in (1, 1, 2))
    assert one == same
    assert one.losses != other.losses
    assert all(torch.equal(network.state_dict()["fc2.bias"], before[name]) for name, network in starts.items())


def test_an_accuracy_is_the_share_of_test_images_that_are_right(starts, small, digits):
    for network in starts.values():  # every network always says "7"
        last = network[-1]
        with torch.no_grad():
            last.bias.zero_()[7] = 100
    share = float((digits.test.labels == 7).double().mean())
    assert trained(starts, small, digits, lr=0.0).accuracies == [[share] * 4]
