import torch

from contracts.states import assert_same
from orthosparse import DISTRIBUTIONS
from orthosparse.lab.data import load
from orthosparse.lab.models import build
from orthosparse.lab.seeds import generators
from orthosparse.lab.training.assembly import scored_on, shuffled

CPU = torch.device("cpu")


def loader_of(config):
    return shuffled(config, load("digits"), generators(1), CPU)


def test_batches_come_in_pieces_of_eight_and_a_short_one_by_itself(config):
    asked = config(distribution="grasp", score_batches=99)
    loader = loader_of(asked)  # 20 batches of 64, and one of 14
    pieces = scored_on(asked, loader)["batch"]
    assert [len(labels) for _, labels in pieces] == [512, 512, 256, 14]
    alone = [labels for _, labels in loader.epoch(0)]
    assert torch.equal(torch.cat([labels for _, labels in pieces]), torch.cat(alone))


def test_pieces_give_the_scores_of_their_batches(config, generator):
    asked = config(distribution="grasp", score_batches=99)
    network = build("mlp", classes=10, in_shape=(1, 8, 8), activation="tanh", generator=generator, depth=3, width=32)
    loader = loader_of(asked)
    masks = [
        DISTRIBUTIONS["grasp"](network.double(), 0.3, **data)
        for data in (_doubled(scored_on(asked, loader)), _doubled({"batch": list(loader.epoch(0)), "loss": None}))
    ]
    assert_same(masks[0], masks[1])


def _doubled(data):
    return {**data, "batch": [(images.double(), labels) for images, labels in data["batch"]]}


def test_other_distributions_and_networks_get_the_batches_as_they_are(config):
    for asked in (
        config(distribution="snip", score_batches=3),
        config(distribution="grasp"),
    ):
        found = scored_on(asked, loader_of(asked))
        assert [len(labels) for _, labels in found["batch"]] == [64] * asked.score_batches
        assert found["loss"] is None
