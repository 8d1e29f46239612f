"""What a model was, to compare with what it is."""

import torch


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(before, after):
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    for name, value in before.items():
        assert torch.equal(value, after[name]), name
