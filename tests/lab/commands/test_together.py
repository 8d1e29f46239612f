import json

import pytest

from orthosparse.lab import cli
from orthosparse.lab.experiments import experiment_of
from orthosparse.lab.sweep.pairs import Pair, perform_pair
from orthosparse.lab.sweep.store import Store

SMALL = "--data digits --depth 8 --width 16 --density 0.3 --epochs 1 --lr 0.05 --batch 100 --device cpu"
STARTS = ["--start", "erk/base", "--start", "erk/ai,iterations=20", "--start", "erk/eoi", "--start", "dense"]


def _together(out, *more):
    return cli.main(["together", *SMALL.split(), "--out", str(out), *more])


def _rows(folder):
    """The rows of a store by scheme, density, moving masks and seed."""
    names = ("scheme", "density", "dynamic")
    rows = Store(folder / "results.sqlite").rows()
    return {(*(row["fields"][name] for name in names), row["seed"]): row for row in rows}


def test_every_start_has_a_line_and_every_member_a_row(tmp_path, capsys):
    assert _together(tmp_path, *STARTS, "--seeds", "1,2") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["start", "density", "test", "accuracy"]
    assert [line.split()[0] for line in lines] == [*STARTS[1::2], "rows"]
    rows = _rows(tmp_path)
    starts = (("base", 0.3), ("ai", 0.3), ("eoi", 0.3), ("eoi", 1.0))
    assert rows.keys() == {(*start, None, seed) for start in starts for seed in (1, 2)}
    mean = 50 * sum(rows["base", 0.3, None, seed]["metrics"]["test_accuracy"] for seed in (1, 2))
    assert f"{mean:.2f} % (" in lines[0]
    assert rows["base", 0.3, None, 1]["fields"]["options"] == {}
    assert rows["ai", 0.3, None, 1]["fields"]["options"] == {"iterations": 20}


def test_residual_networks_have_no_depth_to_choose_and_train_together_too(few_digits, tmp_path, capsys):
    shape = "--model resnet32 --data digits --density 0.3 --epochs 1 --batch 30 --device cpu"
    starts = ["--start", "erk/base", "--start", "erk/eoi", "--start", "dense"]
    assert cli.main(["together", *shape.split(), *starts, "--out", str(tmp_path)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:-1]] == starts[1::2]
    rows = _rows(tmp_path)
    assert rows.keys() == {("base", 0.3, None, 1), ("eoi", 0.3, None, 1), ("eoi", 1.0, None, 1)}
    assert [row["fields"]["model"] for row in rows.values()] == ["resnet32"] * 3
    assert [row["metrics"]["together"] for row in rows.values()] == [3, 3, 3]
    assert len({row["metrics"]["test_loss"] for row in rows.values()}) == 3


def test_the_row_of_a_member_is_that_of_a_run_alone(tmp_path):
    assert _together(tmp_path / "together", "--start", "erk/eoi", "--start", "dense", "--precision", "fp64") == 0
    row = _rows(tmp_path / "together")["eoi", 0.3, None, 1]
    alone = perform_pair(Pair(experiment_of(row["key"]), 1), device="cpu")
    assert alone["curves"].keys() == row["curves"].keys()
    assert alone["metrics"]["test_loss"] == pytest.approx(row["metrics"]["test_loss"], rel=1e-9)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_rows_have_the_accuracies_after_every_epoch_that_the_help_names(tmp_path, capsys, split):
    assert _together(tmp_path, "--start", "erk/base", *["--no-validation"] * (split == "test")) == 0
    (row,) = _rows(tmp_path).values()
    assert [name for name in row["curves"] if name.endswith("_accuracy")] == [f"{split}_accuracy"]
    capsys.readouterr()
    assert cli.main(["together", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the validation accuracy after every epoch (with --no-validation the test accuracy)" in said


def test_a_finished_run_is_told_again_and_not_overwritten(tmp_path, capsys):
    assert _together(tmp_path, "--start", "erk/base", "--json") == 0
    first = capsys.readouterr().out
    assert _together(tmp_path, "--start", "erk/base") == 2
    assert "holds a run already" in capsys.readouterr().err
    assert _together(tmp_path, "--start", "erk/base", "--json", "--resume") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(first)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--start", "erk/ai", "--density", "0", "--start", "erk/eoi"], "density: expected at least"),
        (["--start", "erk/ai", "--start", "erk/eoi,iterations=3"], "options: expected one that"),
        (["--start", "erk/ai", "--start", "erk/ai,iterations=-1"], "iterations: expected an integer of at least 0"),
        (["--start", "erk/base", "--density", "0.05", "--floor", "error", "--start", "uniform/eoi"], "floor"),
        (["--start", "erk/ai", "--start", "synflow/eoi"], "model: synflow needs twice the output for twice the input"),
    ],
)
def test_a_start_that_cannot_be_made_is_refused_before_any_other_is_made_or_trained(
    tmp_path, capsys, monkeypatch, more, expected
):
    monkeypatch.setattr("orthosparse.lab.training.stacked.assembly.start_of", None)  # would raise a TypeError
    assert _together(tmp_path / "out", *more) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_rows_say_with_how_many_they_shared_their_time(tmp_path):
    assert _together(tmp_path, "--start", "erk/base", "--start", "dense") == 0
    assert [row["metrics"]["together"] for row in _rows(tmp_path).values()] == [2, 2]


def test_masks_of_a_start_may_move(tmp_path, capsys):
    assert _together(tmp_path, "--start", "erk/eoi,dynamic=rigl,every=3", "--start", "erk/eoi") == 0
    moved, stayed = (_rows(tmp_path)["eoi", 0.3, dynamic, 1] for dynamic in ("rigl", None))
    assert (moved["fields"]["every"], moved["fields"]["options"]) == (3, {})
    assert moved["metrics"]["test_loss"] != stayed["metrics"]["test_loss"]
    assert capsys.readouterr().out.splitlines()[1].startswith("erk/eoi,dynamic=rigl,every=3")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--start", "erk/eoi,dynamic=ringl"], "dynamic: expected one of rigl, set; got 'ringl'"),
        (
            ["--start", "erk/eoi,until=1"],
            "start: expected dynamic=rigl or dynamic=set with until; got 'erk/eoi,until=1'",
        ),
        (["--model", "resnet32"], "depth: expected one of the models cnn1000, mlp, mlp1000 with it; got resnet32"),
        (["--start", "eoi"], "start: expected dense or DISTRIBUTION/SCHEME, such as erk/eoi; got 'eoi'"),
        (["--start", "erk/eio"], "scheme"),
        (["--start", "erk/ai,iterations"], "option: expected NAME=VALUE"),
        (["--seeds", "one"], "seeds: expected whole numbers"),
        (["--depth", "1"], "depth: expected at least 2"),
        (["--model-option", "depth=5"], "depth: expected it once; got it as an option of the model too"),
    ],
)
def test_bad_words_are_answered_with_one_line(tmp_path, capsys, more, expected):
    assert _together(tmp_path, *more) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1


def test_other_depths_and_seeds_have_folders_of_their_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for more in (["--seeds", "1,2"], ["--depth", "4"]):
        assert cli.main(["together", *SMALL.split(), "--start", "erk/eoi", "--start", "dense", *more]) == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "together-mlp1000-depth4-width16-digits-0.3-seeds1",
        "together-mlp1000-depth8-width16-digits-0.3-seeds1,2",
    ]
    assert "rows in runs/together-mlp1000-depth4" in capsys.readouterr().out


def test_an_option_that_another_one_leaves_without_effect_is_refused(tmp_path, capsys):
    assert _together(tmp_path / "run", "--min-lr", "0.001") == 2
    assert "error: min_lr: expected --schedule cosine with it; got steps" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_networks_that_diverge_are_named_with_the_reason(tmp_path, capsys):
    starts = ["--start", "dense", "--start", "erk/base"]
    assert _together(tmp_path, *starts, "--seeds", "1,2", "--lr", "1e30") == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    named = [name for line in errors for name in line.removeprefix("error: ").split(": ")[0].split(", ")]
    assert sorted(named) == ["dense seed 1", "dense seed 2", "erk/base seed 1", "erk/base seed 2"]
    assert all("training stopped" in line for line in errors)
