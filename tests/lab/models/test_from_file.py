import pytest
import torch

from orthosparse.lab.models import build

FILE = """
from torch import nn

def small(classes, width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(12, width), nn.ReLU(), nn.Linear(width, classes))

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 3))

def wrong():
    return 3
"""
SIZES = {"classes": 3, "in_shape": (3, 2, 2)}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "nets.py"
    path.write_text(FILE)
    return path


def test_a_function_is_given_what_it_takes_and_draws_from_the_generator_alone(file):
    before = torch.get_rng_state()
    one, same, other = (
        build(f"{file}:small", width=6, generator=torch.Generator().manual_seed(seed), **SIZES) for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert one[1].out_features == 6
    assert torch.equal(one[1].weight, same[1].weight)
    assert not torch.equal(one[1].weight, other[1].weight)


def test_a_function_may_know_its_own_sizes(file):
    assert build(f"{file}:plain", **SIZES)[1].out_features == 3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("plain", {"activation": "relu"}, "activation: expected none, as .*plain takes no such argument; got 'relu'"),
        ("plain", {"classes": 4}, "classes: expected as many as the model gives, 3; got 4"),
        ("plain", {"in_shape": (3, 4, 4)}, "in_shape: expected images that the model takes"),
        ("wrong", {}, "model: expected .*wrong to return a torch.nn.Module; got int"),
        ("missing", {}, r"model: expected a function of .*\(plain, small, wrong\); got 'missing'"),
    ],
)
def test_what_a_file_cannot_give_is_said(file, name, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build(f"{file}:{name}", **{**SIZES, **options})
