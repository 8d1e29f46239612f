import json

import pytest

from orthosparse.lab import cli

SMALL = "--model mlp --data digits --activation tanh --density 0.3 --scheme base --epochs 1 --batch 64 --lr 0.1"


def _train(out, *more):
    return cli.main(["train", *SMALL.split(), "--out", str(out), "--device", "cpu", "--log", "csv", *more])


def test_a_run_leaves_a_row_a_log_and_one_line(tmp_path, capsys):
    assert _train(tmp_path / "run") == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("test accuracy ")
    assert captured.out.count("\n") == 1
    assert captured.err.startswith("epoch   1")
    row = json.loads((tmp_path / "run" / "result.jsonl").read_text())
    assert row["config"]["recipe"]["lr"] == 0.1
    assert row["config"]["recipe"]["weight_decay"] == 1e-4
    assert row["config"]["density"] == 0.3
    assert (tmp_path / "run" / "metrics.csv").exists()


def test_a_second_run_is_refused_resumed_or_told_what_differs(tmp_path, capsys):
    assert _train(tmp_path, "--quiet") == 0
    assert _train(tmp_path, "--quiet") == 2
    assert "--resume" in capsys.readouterr().err
    assert _train(tmp_path, "--quiet", "--resume") == 0
    assert _train(tmp_path, "--quiet", "--resume", "--seed", "2", "--lr", "0.2") == 2
    error = capsys.readouterr().err
    assert "config.recipe.lr (0.1 there, 0.2 here)" in error
    assert "seed (1 there, 2 here)" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--model", "resnet33"], "model: expected one of cnn1000"),
        (["--model", "timm:resnet18"], "recipe: expected one of cnn1000"),
        (["--data", "cifar11"], "cifar10"),
        (["--distribution", "ekr"], "erk"),
        (["--scheme", "eio"], "base"),
        (["--dynamic", "rigel"], "rigl, set"),
        (["--recipe", "resnet33"], "recipe: expected one of cnn1000"),
        (["--density", "1.5"], "density"),
        (["--density", "many"], "density"),
        (["--epochs", "0"], "epochs: expected a positive integer"),
        (["--score-batches", "0"], "score_batches: expected a positive integer; got 0"),
        (["--checkpoint-steps", "-5"], "checkpoint_steps: expected 0 or more; got -5"),
        (["--checkpoint-seconds", "-1"], "checkpoint_seconds: expected 0 or more; got -1.0"),
        (["--checkpoint-seconds", "nan"], "checkpoint_seconds: expected 0 or more; got nan"),
        (["--device", "tpu"], "auto, cpu, cuda"),
        (["--precision", "fp8"], "bf16"),
        (["--log", "mlflow"], "tensorboard"),
        (["--option", "center"], "NAME=VALUE"),
        (["--option", "nonsense=1"], "nonsense"),
        (["--data", "mnist"], "root: expected the folder that holds mnist"),
        (["--data", "mnist", "--root", "/nowhere"], "/nowhere"),
    ],
)
def test_a_wrong_word_is_one_line_that_says_what_was_expected(tmp_path, capsys, more, expected):
    assert _train(tmp_path / "run", "--quiet", *more) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert expected in captured.err


def test_with_json_stdout_holds_the_row_alone(tmp_path, capsys):
    assert _train(tmp_path / "run", "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == json.loads((tmp_path / "run" / "result.jsonl").read_text())
    assert captured.err.startswith("epoch   1")
