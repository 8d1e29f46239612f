import shutil
from dataclasses import replace

import pytest

from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.sweep.pairs import Pair, Task
from orthosparse.lab.sweep.tasks import begin, ordered, stacked


def training(depth=4, seed=1, **fields):
    return Pair(Training("mlp", "digits", model_options={"depth": depth, "width": 16}, epochs=1, **fields), seed)


def stack(*pairs, begun=False, missing=None):
    return Task(pairs, pairs if missing is None else missing, stacked=True, begun=begun)


def alone(pair):
    return Task((pair,), (pair,))


PICTURE = Pair(MaskPicture("eoi"), 1)
A, B, C = training(density=0.5), training(), training(density=0.5, seed=2)
OTHER = training(depth=5)


def test_one_seed_of_every_experiment_comes_before_the_second(toys):
    pairs = [toys.pair(name, seed) for name in "abc" for seed in (1, 2)]
    assert [str(pair.experiment.name) + str(pair.seed) for pair in ordered(pairs, set())] == [
        "a1",
        "b1",
        "c1",
        "a2",
        "b2",
        "c2",
    ]


def test_an_experiment_that_has_rows_waits_for_those_that_have_none(toys):
    pairs = [toys.pair(name, seed) for name in "ab" for seed in (1, 2, 3)]
    have = {toys.pair("a", 2).name, toys.pair("a", 7).name}
    assert [(pair.experiment.name, pair.seed) for pair in ordered(pairs, have)] == [
        ("b", 1),
        ("b", 2),
        ("a", 1),
        ("b", 3),
        ("a", 3),
    ]


def test_pairs_of_one_shape_are_stacked_in_the_place_of_the_first(tmp_path):
    tasks = stacked([A, PICTURE, OTHER, B, C], set(), 9, tmp_path)
    assert tasks == [stack(A, B, C), alone(PICTURE), stack(OTHER)]


def test_the_networks_of_one_shape_in_the_paper_are_one_stack_of_all_densities(tmp_path):
    every = [experiment for name in ("contemporary", "contemporary_5") for experiment in ITEMS[name].experiments()]
    every = list({experiment.key(): experiment for experiment in every}.values())  # both have the dense ones
    residual, others = ([Pair(e, 1) for e in every if e.model == model] for model in ("resnet32", "vgg16c"))
    tasks = stacked([*others, *residual], set(), 99, tmp_path)
    assert tasks == [stack(*others), stack(*residual)]
    assert {pair.experiment.density for pair in residual} == {0.05, 0.1, 1.0}


def test_a_stack_has_so_many_pairs_at_most(tmp_path):
    assert stacked([A, B, C], set(), 2, tmp_path) == [stack(A, B), stack(C)]
    with pytest.raises(ValueError, match="together: expected at least 1; got 0"):
        stacked([A], set(), 0, tmp_path)


def test_a_stack_that_was_begun_comes_first_and_keeps_its_pairs(tmp_path):
    begin(stack(A, C), tmp_path)
    tasks = stacked([B, A, C], set(), 9, tmp_path)
    assert tasks == [stack(A, C, begun=True), stack(B)]
    assert tasks[0].folder == stack(A, C).folder


def test_a_stack_some_of_whose_rows_are_there_gives_the_others(tmp_path):
    begin(stack(A, C), tmp_path)
    tasks = stacked([B, C], {A.name}, 9, tmp_path)
    assert tasks == [stack(A, C, missing=(C,), begun=True), stack(B)]


def test_a_stack_of_which_not_all_is_asked_for_is_left_alone(tmp_path):
    begin(stack(A, C), tmp_path)
    assert stacked([B, C], set(), 9, tmp_path) == [stack(B, C)]


def test_a_stack_whose_folder_another_runner_removes_meanwhile_is_passed_over(tmp_path):
    first, second = sorted([stack(A), stack(C)], key=lambda task: task.folder)
    for task in (first, second):
        begin(task, tmp_path)

    class Names(set):
        """Names of rows; when they are asked for, the other runner ends the second stack."""

        def __contains__(self, name):
            shutil.rmtree(tmp_path / second.folder, ignore_errors=True)
            return super().__contains__(name)

    pairs = [*first.pairs, *second.pairs]
    assert stacked(pairs, Names(), 9, tmp_path) == [replace(first, begun=True), second]


def test_a_stack_of_another_version_is_left_alone(tmp_path, caplog):
    folder = tmp_path / "together-0"
    folder.mkdir()
    (folder / "members.json").write_text('[["{\\"kind\\":\\"training\\",\\"later\\":1}", 1]]')
    assert stacked([A], set(), 9, tmp_path) == [stack(A)]
    assert "is not resumed" in caplog.text
