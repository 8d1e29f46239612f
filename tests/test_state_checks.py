"""State dicts that are none are named, with what to do instead."""

import pathlib

import pytest
from torch import nn

import orthosparse


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("model.pt", "got 'model.pt' .*: torch.load and safetensors read one from a file"),
        (pathlib.Path("model.pt"), "torch.load and safetensors read one from a file"),
        (nn.Linear(2, 2), r"got Linear: its state_dict\(\) returns one"),
        ({"epoch": 1, "model": {}, "model_ema": {}}, "a checkpoint that holds some: pass its 'model' or 'model_ema'"),
    ],
)
def test_what_is_no_state_dict_is_answered_with_what_to_do(state, message):
    with pytest.raises(TypeError, match=f"state: expected a state dict; .*{message}"):
        orthosparse.load_sparse(nn.Linear(2, 2), state)
    with pytest.raises(TypeError, match=f"rewind: expected a state dict; .*{message}"):
        orthosparse.prune(nn.Linear(2, 2), 0.5, rewind=state)
