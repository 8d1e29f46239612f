"""What a model was, to compare with what it is."""

import torch


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def whole_state_of(model):
    """The state of a model whose parameters are sharded, gathered on every rank."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def assert_same(before, after):
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    for name, value in before.items():
        assert torch.equal(value, after[name]), name
