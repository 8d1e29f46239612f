import json
from pathlib import Path

import pytest

from orthosparse.lab.experiments.training import Training
from orthosparse.lab.sweep.text import read_text
from orthosparse.lab.sweep.trainings import row_of

COMMITTED = Path(__file__).parents[3] / "results" / "train_resnet32_cifar10.jsonl"
LINES = [json.loads(line) for line in COMMITTED.read_text().splitlines()]


def test_results_of_the_train_command_become_the_rows_of_their_experiments():
    rows, problems = read_text(COMMITTED)
    assert problems == []
    start = {"model": "resnet32", "data": "cifar10", "density": 0.1, "distribution": "erk"}
    moving = [Training(**start, scheme="base", dynamic=name) for name in ("rigl", "set")]
    expected = [Training(**start, scheme="base"), Training(**start), *moving]
    assert [row["key"] for row in rows] == [experiment.key() for experiment in expected]
    for row, line in zip(rows, LINES, strict=True):
        assert row["metrics"]["test_accuracy"] == line["test_accuracy"]
        assert row["commit"] == line["commit"]
        assert len(row["curves"]["validation_accuracy"]) == 200


def test_a_changed_value_of_the_recipe_is_part_of_the_key():
    line = json.loads(json.dumps(LINES[0]))
    line["config"]["recipe"]["lr"] = 0.01
    assert row_of(line)["key"] == Training("resnet32", "cifar10", density=0.1, scheme="base", lr=0.01).key()


def test_a_result_that_shared_its_time_says_with_how_many():
    assert row_of(LINES[0] | {"together": 12})["metrics"]["together"] == 12
    assert "together" not in row_of(LINES[0])["metrics"]


def test_settings_that_no_experiment_has_are_refused():
    line = json.loads(json.dumps(LINES[0]))
    line["config"]["recipe"]["colour"] = 0.2
    with pytest.raises(ValueError, match=r"settings that no experiment has: \['colour'\]"):
        row_of(line)


def test_a_torn_line_is_left_out_and_named(tmp_path):
    whole = COMMITTED.read_text().splitlines()
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join([whole[0], whole[1][:500], whole[2]]))
    rows, problems = read_text(path)
    assert len(rows) == 2
    assert len(problems) == 1
    assert "line 2" in problems[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 10**22}, "not a row (seed is 10000000000000000000000)"),
        ({"test_accuracy": "high"}, "not a row (metric test_accuracy is 'high')"),
        ({"together": 0}, "not a row (metric together is 0)"),
        ({"config": []}, "not a whole result of a training (AttributeError"),
        ({"epochs": []}, "not a whole result of a training (IndexError"),
        ({"config": {}}, "not a whole result of a training (KeyError: 'model')"),
    ],
)
def test_a_result_that_makes_no_row_is_named_and_costs_no_other(tmp_path, changes, said):
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in [LINES[0] | changes, LINES[1]]))
    rows, (problem,) = read_text(path)
    assert len(rows) == 1
    assert problem.startswith(f"{path}: line 1: {said}")
