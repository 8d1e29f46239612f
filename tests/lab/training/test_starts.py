from dataclasses import replace

import pytest
import torch

from contracts.states import assert_same
from orthosparse.lab.data import load
from orthosparse.lab.training import starts
from orthosparse.lab.training.assembly import started
from orthosparse.lab.training.starts import make_starts, start_of

CPU = torch.device("cpu")


@pytest.mark.parametrize("changes", [{}, {"density": 0.3}, {"density": 0.3, "exclude": ("fc",), "model": "cnn1000"}])
def test_a_start_is_that_of_a_run_alone_and_comes_back_from_its_file(deep, tmp_path, changes):
    data, config = load("digits"), deep(**changes)
    expected = started(config, 3, data, CPU).state_dict()
    made = start_of(config, 3, data, CPU, tmp_path / "a")
    again = start_of(config, 3, data, CPU, tmp_path / "a")
    assert_same(made.state, expected)
    assert_same(again.state, expected)
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
    assert_same(start_of(config, 1, data, CPU, folder).state, expected.state)


def test_starts_made_by_processes_are_those_made_in_their_turn(deep, four, tmp_path):
    data = load("digits")
    members = [*four(), (deep(density=0.0001), 1), (deep(density=0.3, scheme="ai", options={"iterations": 9}), 1)]
    folders = [tmp_path / str(place) for place in range(len(members))]
    make_starts(members, folders, None, CPU, 2)
    assert all(folder.exists() for folder in folders)
    for (config, seed), folder in zip(members, folders, strict=True):
        kept = start_of(config, seed, data, CPU, folder)
        made = start_of(config, seed, data, CPU, None)
        assert (kept.problem, kept.warnings, kept.density) == (made.problem, made.warnings, made.density)
        assert_same(kept.state, made.state)


def test_only_descents_and_scores_of_many_batches_are_slow(deep):
    quick = [deep(), deep(density=0.3), deep(density=0.3, distribution="snip")]
    assert not any(starts.is_slow(config) for config in quick)
    many = replace(deep(density=0.3, distribution="grasp"), score_batches=3)
    assert all(starts.is_slow(config) for config in (deep(density=0.3, scheme="ai"), many))


def test_processes_that_die_leave_the_starts_to_the_run(deep, tmp_path, caplog, monkeypatch):
    class Dying(starts.ProcessPoolExecutor):
        def submit(self, *task):
            raise starts.BrokenProcessPool("a process died")

    monkeypatch.setattr(starts, "ProcessPoolExecutor", Dying)
    folders = [tmp_path / str(seed) for seed in range(2)]
    make_starts([(deep(), seed) for seed in range(2)], folders, None, CPU, 2)
    assert "starts are made one after the other: a process died" in caplog.text
    assert not any(folder.exists() for folder in folders)
