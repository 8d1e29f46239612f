import json

import pytest

from orthosparse.lab.bench import training
from orthosparse.lab.cli import main


def test_sampler_rows_are_printed_and_written(tmp_path, capsys):
    file = tmp_path / "new" / "rows.jsonl"
    assert main(["bench", "sampler", "observation", "--quick", "--out", str(file)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "standard errors" in captured.out
    row = json.loads(file.read_text())
    assert row["value"] <= row["limit"] == 0.05


def test_with_json_stdout_holds_the_rows_alone(capsys):
    assert main(["bench", "sampler", "observation", "--quick", "--json"]) == 0
    captured = capsys.readouterr()
    assert [row["check"] for row in json.loads(captured.out)] == ["points off by 3 standard errors"]
    assert "standard errors" in captured.err


@pytest.fixture
def timed(monkeypatch):
    """Rows of a benchmark that takes no time."""
    figures = {
        "seconds_per_epoch": 1.5,
        "milliseconds_per_step": 4.0,
        "faster_than_plain": 2.0,
        "cost_against_dense": 0.1,
    }
    rows = [
        {"model": "resnet32", "method": method, "device": "toy", **figures}
        for method in ("plain eager", "dense", "masked")
    ]

    def measure(setting, say):
        say(f"{setting.models[0]} {setting.steps}")
        return rows

    monkeypatch.setattr(training, "measure", measure)
    return rows


def test_training_is_timed_and_told(timed, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no data are, whatever has been downloaded here
    file = tmp_path / "rows.jsonl"
    given = ["bench", "training", "--models", "resnet32", "--steps", "7", "--out", str(file)]
    assert main(given) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("CIFAR-10, batch 128, tf32, toy\n")
    reported = captured.err.splitlines()
    assert reported[0].startswith("training on random images, which takes as long (cifar10: expected data/cifar")
    assert reported[1:] == ["resnet32 7"]
    assert [json.loads(line) for line in file.read_text().splitlines()] == timed
    assert main([*given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == timed


def test_unknown_checks_are_answered_with_the_known_ones(capsys):
    assert main(["bench", "sampler", "spead"]) == 2
    known = "calls, exactness, growth, observation, speed"
    assert f"checks: expected one of {known}; got 'spead'; did you mean 'speed'?" in capsys.readouterr().err


def test_rows_of_compact_layers_are_written_as_they_come(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    assert main(["bench", "compact", "blocks", "--quick", "--device", "cpu", "--out", str(file)]) == 0
    rows, out = [json.loads(line) for line in file.read_text().splitlines()], capsys.readouterr().out
    assert {row["check"] for row in rows} == {"blocks"}
    assert all(row["case"] in out for row in rows)
    assert main(["bench", "compact", "blocs"]) == 2


def test_all_benchmarks_are_named(capsys):
    assert main(["bench", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("sampler", "training", "compact"))
