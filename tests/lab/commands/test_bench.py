import json

from orthosparse.lab.cli import main


def test_sampler_rows_are_printed_and_written(tmp_path, capsys):
    file = tmp_path / "rows.json"
    assert main(["bench", "sampler", "observation", "--quick", "--json", str(file)]) == 0
    assert "Observation" not in capsys.readouterr().err
    (row,) = json.loads(file.read_text())
    assert row["value"] <= row["limit"] == 0.05


def test_unknown_checks_are_answered_with_the_known_ones(capsys):
    assert main(["bench", "sampler", "spead"]) == 2
    assert "checks: expected any of exactness, speed, calls, growth, observation; got spead" in capsys.readouterr().err


def test_both_benchmarks_are_named(capsys):
    assert main(["bench", "--help"]) == 0
    out = capsys.readouterr().out
    assert "sampler" in out
    assert "training" in out
