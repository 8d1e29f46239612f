import pytest
import torch

from orthosparse.lab.data import load
from orthosparse.lab.training.assembly import started
from orthosparse.lab.training.ensemble.starts import start_of

CPU = torch.device("cpu")


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("changes", [{}, {"density": 0.3}, {"density": 0.3, "exclude": ("fc",), "model": "cnn1000"}])
def test_a_start_is_that_of_a_run_alone_and_comes_back_from_its_file(deep, tmp_path, changes):
    data, config = load("digits"), deep(**changes)
    expected = started(config, 3, data, CPU).state_dict()
    made = start_of(config, 3, data, CPU, tmp_path / "a")
    again = start_of(config, 3, data, CPU, tmp_path / "a")
    assert same(made.state, expected)
    assert same(again.state, expected)
    assert (again.density, again.parameters) == (made.density, made.parameters)
    masks = [tensor for name, tensor in expected.items() if name.endswith("_mask")]
    numbers = sum(mask.numel() for mask in masks)
    assert made.density == (sum(int(mask.sum()) for mask in masks) / numbers if masks else 1.0)


def test_what_the_library_said_is_kept_with_the_start(deep, tmp_path):
    config = deep(density=0.05, distribution="uniform")
    for _ in range(2):
        start = start_of(config, 1, load("digits"), CPU, tmp_path / "a")
        assert "below their floors" in start.warnings[0]


def test_a_start_that_cannot_be_made_says_why_and_is_not_tried_twice(deep, tmp_path):
    config = deep(density=0.0001)
    for _ in range(2):
        start = start_of(config, 1, load("digits"), CPU, tmp_path / "a")
        assert start.problem.startswith("ValueError: density: expected at least")
        assert start.state == {}


def test_the_start_of_another_run_is_not_taken(deep, tmp_path):
    start_of(deep(), 1, load("digits"), CPU, tmp_path / "a")
    with pytest.raises(ValueError, match=r"differ in seed \(1 there, 2 here\)"):
        start_of(deep(), 2, load("digits"), CPU, tmp_path / "a")


def test_a_start_whose_writing_was_killed_is_made_again(deep, tmp_path):
    data, config, folder = load("digits"), deep(density=0.3), tmp_path / "a"
    expected = start_of(config, 1, data, CPU, folder)
    (folder / "checkpoint-000000000.json").unlink()  # it is written last
    assert same(start_of(config, 1, data, CPU, folder).state, expected.state)
