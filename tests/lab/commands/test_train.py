import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orthosparse.lab import cli
from orthosparse.lab.experiments import experiment_of
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.sweep.pairs import Pair, perform_pair
from orthosparse.lab.sweep.store import Store
from orthosparse.lab.training.checkpoint import locked

SMALL = "--model mlp --data digits --activation tanh --density 0.3 --scheme base --epochs 1 --batch 64 --lr 0.1"


def _train(out, *more):
    return cli.main(["train", *SMALL.split(), "--out", str(out), "--device", "cpu", "--log", "csv", *more])


def test_a_run_leaves_a_row_a_log_and_one_line(tmp_path, capsys):
    assert _train(tmp_path / "run") == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("test accuracy ")
    assert captured.out.count("\n") == 1
    assert captured.err.startswith("epoch   1")
    (row,) = Store(tmp_path / "run" / "results.sqlite").rows()
    assert (row["fields"]["lr"], row["fields"]["weight_decay"], row["fields"]["density"]) == (0.1, 1e-4, 0.3)
    assert (
        row["key"] == Training("mlp", "digits", 0.3, scheme="base", activation="tanh", epochs=1, batch=64, lr=0.1).key()
    )
    assert (tmp_path / "run" / "metrics.csv").exists()


def test_a_second_run_is_refused_resumed_or_told_what_differs(tmp_path, capsys):
    assert _train(tmp_path, "--quiet") == 0
    assert _train(tmp_path, "--quiet") == 2
    assert "--resume" in capsys.readouterr().err
    assert _train(tmp_path, "--quiet", "--resume") == 0
    assert _train(tmp_path, "--quiet", "--resume", "--seed", "2", "--lr", "0.2") == 2
    error = capsys.readouterr().err
    assert "resume: expected the run of" in error
    assert '"lr":0.1' in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--model", "resnet33"], "timm:NAME or path/to/file.py:function; got 'resnet33'; did you mean 'resnet32'?"),
        (["--model", "timm:resnet18"], "recipe: expected one of cnn1000"),
        (["--data", "cifar11"], "tiny_imagenet or path/to/file.py:function; got 'cifar11'; did you mean 'cifar10'?"),
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
        (["--data", "mnist"], "mnist: expected data/MNIST/raw"),
        (["--data", "mnist", "--root", "/nowhere"], "/nowhere"),
    ],
)
def test_a_wrong_word_is_one_line_that_says_what_was_expected(tmp_path, capsys, monkeypatch, more, expected):
    monkeypatch.chdir(tmp_path)  # where no data are, whatever has been downloaded here
    assert _train(tmp_path / "run", "--quiet", *more) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert expected in captured.err


def test_with_json_stdout_holds_the_row_alone(tmp_path, capsys):
    assert _train(tmp_path / "run", "--json") == 0
    captured = capsys.readouterr()
    assert [json.loads(captured.out)] == Store(tmp_path / "run" / "results.sqlite").rows()
    assert captured.err.startswith("epoch   1")


def test_the_row_of_a_sweep_and_of_the_command_is_one(tmp_path, capsys):
    assert _train(tmp_path / "run", "--quiet") == 0
    (row,) = Store(tmp_path / "run" / "results.sqlite").rows()
    swept = perform_pair(Pair(experiment_of(row["key"]), 1), device="cpu")
    assert row.keys() == swept.keys()
    assert row["metrics"].keys() == swept["metrics"].keys()
    for name in ("test_accuracy", "test_loss", "density", "parameters"):
        assert row["metrics"][name] == swept["metrics"][name]
    capsys.readouterr()


def test_a_training_that_diverges_has_a_row_and_fails(tmp_path, capsys):
    assert _train(tmp_path / "run", "--quiet", "--lr", "1e30") == 1
    assert "Try a lower lr" in capsys.readouterr().err
    (row,) = Store(tmp_path / "run" / "results.sqlite").rows()
    assert row["metrics"]["diverged"] is True


def test_a_second_training_into_the_same_folder_is_told_that_it_is_in_use(tmp_path, capsys):
    out = tmp_path / "same"
    slow = [*SMALL.split(), "--out", str(out), "--device", "cpu", "--epochs", "100000"]
    with subprocess.Popen([sys.executable, "-m", "orthosparse", "train", *slow], stderr=-1) as first:
        try:
            end = time.monotonic() + 120
            while not (out / "metrics.csv").exists():
                assert first.poll() is None, first.stderr.read()
                assert time.monotonic() < end
                time.sleep(0.01)
            for more in ([], ["--resume"], ["--seed", "2"]):
                assert _train(out, "--quiet", *more) == 2
                error = capsys.readouterr().err
                assert f"out: {out} is in use by process {first.pid} on" in error
                assert error.count("\n") == 1
        finally:
            first.kill()
    assert _train(tmp_path / "other", "--quiet") == 0
    with locked(out):  # that of a process that was killed is void
        pass


def test_a_disk_that_is_full_ends_the_training_with_the_name_of_the_file(tmp_path):
    out = tmp_path / "run"
    words = [sys.executable, "-m", "orthosparse", "train", *SMALL.split(), "--out", str(out), "--quiet"]
    limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, 2**14))  # noqa: E731
    finished = subprocess.run(
        [*words, "--device", "cpu", "--log", "csv"], preexec_fn=limited, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 1, finished.stderr
    assert finished.stderr.startswith(f"error: {out}/checkpoint-")
    assert "File too large" in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert [path.name for path in out.iterdir()] == ["metrics.csv"]


def test_a_damaged_checkpoint_is_said_and_is_no_part_of_the_row(tmp_path, capsys):
    out = tmp_path / "run"
    assert _train(out, "--quiet", "--checkpoint-steps", "5") == 0
    (out / "results.sqlite").unlink()
    max(out.glob("checkpoint-*.json")).write_text("{}")
    assert _train(out, "--quiet", "--resume") == 0
    assert f"{out}/checkpoint-" in capsys.readouterr().err
    (row,) = Store(out / "results.sqlite").rows()
    assert "warnings" not in row["metrics"]


def test_a_forged_checkpoint_is_one_line(tmp_path, capsys):
    out = tmp_path / "run"
    assert _train(out, "--quiet") == 0
    (out / "results.sqlite").unlink()
    for path in out.glob("checkpoint-*.json"):
        path.write_text("[" * 10**5 + "]" * 10**5)
    capsys.readouterr()
    assert _train(out, "--quiet", "--resume") == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"error: {out}: every checkpoint in it is damaged; remove it, or choose another, to start again"
    assert all(line.startswith("WARNING: ") for line in lines[:-1])


@pytest.mark.parametrize(
    "more", [["--scheme", "eoi"], ["--distribution", "erk"], ["--option", "iterations=5"], ["--exclude", "fc1"]]
)
def test_an_option_of_the_sparse_start_without_a_density_is_not_ignored(tmp_path, capsys, more):
    dense = ["train", "--model", "mlp", "--data", "digits", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert cli.main([*dense, *more]) == 2
    assert "expected --density with it; without one the dense network is trained" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert cli.main([*dense, *more, "--density", "1", "--quiet", "--device", "cpu", "--log", "csv"]) == 0


@pytest.mark.parametrize(
    ("more", "needed"),
    [
        (["--label-smoothing", "0.1", "--loss", "bce"], "--loss cross_entropy"),
        (["--momentum", "0.5", "--optimizer", "adamw"], "--optimizer sgd"),
        (["--no-nesterov", "--optimizer", "adamw"], "--optimizer sgd"),
        (["--gamma", "0.5", "--schedule", "cosine"], "--schedule steps"),
        (["--warmup-lr", "0.001"], "--warmup"),
        (["--min-lr", "0.001"], "--schedule cosine"),
    ],
)
def test_an_option_that_another_one_leaves_without_effect_is_not_ignored(tmp_path, capsys, more, needed):
    assert _train(tmp_path / "run", *more) == 2
    option = more[0].removeprefix("--").removeprefix("no-").replace("-", "_")
    assert f"error: {option}: expected {needed} with it; got" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("more", [["--every", "5"], ["--fraction", "0.1"], ["--until", "1"]])
def test_an_option_of_masks_that_move_is_not_ignored_where_they_do_not(tmp_path, capsys, more):
    sparse = ["train", "--model", "mlp", "--data", "digits", "--density", "0.1", "--out", str(tmp_path / "run")]
    assert cli.main([*sparse, *more]) == 2
    expected = f"{more[0].removeprefix('--')}: expected --dynamic with it; without it the masks do not move"
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_names_are_taken_in_any_case(tmp_path):
    assert _train(tmp_path / "run", "--quiet", "--model", "MLP", "--scheme", "Base", "--log", "CSV") == 0
    (row,) = Store(tmp_path / "run" / "results.sqlite").rows()
    assert (row["fields"]["model"], row["fields"]["scheme"]) == ("mlp", "base")


def test_a_model_and_data_of_ones_own_are_trained(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "reference" / "commands.md").read_text()
    for name in ("net", "mydata"):
        (code,) = re.findall(rf"```python\n# {name}.py\n(.*?)```", page, re.DOTALL)
        (tmp_path / f"{name}.py").write_text(code)
    (line,) = re.findall("^orthosparse (train --model net.py:build .*)$", page, re.MULTILINE)
    words = [*line.split(), "--quiet", "--log", "csv", "--device", "cpu", "--epochs", "5"]
    assert cli.main(words) == 0
    assert (
        "at density 0.2000; row in runs/net-build-mydata-load-erk-eoi-0.2-seed1/results.sqlite"
        in capsys.readouterr().out
    )
    (row,) = Store(next(tmp_path.glob("runs/*/results.sqlite"))).rows()
    assert row["metrics"]["test_accuracy"] > 0.5
    assert (row["fields"]["model"], row["fields"]["data"]) == ("net.py:build", "mydata.py:load")
    assert cli.main([word for word in line.split() if word not in ("--recipe", "resnet32")]) == 2
    assert "recipe: expected one of cnn1000" in capsys.readouterr().err
