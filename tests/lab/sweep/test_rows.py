import json
from pathlib import Path

import pytest
from sweep_toys import row_of

from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.sweep.pairs import Pair
from orthosparse.lab.sweep.rows import problem_of, read_text

RESULTS = sorted((Path(__file__).parents[3] / "results").glob("*.jsonl"))
ACCURACIES = [0.8931, 0.8955, 0.9055, 0.904]
PICTURE = row_of(Pair(MaskPicture("sao", 8), 1))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_row_that_we_give_away_is_one(path):
    rows, problems = read_text(path)
    assert rows
    assert problems == []


def test_the_first_rows_keep_the_keys_of_their_trainings():
    rows, _ = read_text(next(path for path in RESULTS if path.stem == "train_resnet32_cifar10"))
    start = {"model": "resnet32", "data": "cifar10", "density": 0.1, "distribution": "erk"}
    moving = [Training(**start, scheme="base", dynamic=name) for name in ("rigl", "set")]
    expected = [Training(**start, scheme="base"), Training(**start), *moving]
    assert {row["key"]: row["metrics"]["test_accuracy"] for row in rows} == dict(
        zip((experiment.key() for experiment in expected), ACCURACIES, strict=True)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"metrics": {"value": None, "whole": 3, "yes": True, "warnings": "in words"}},
        {"metrics": {"together": 12}, "curves": {"loss": [0.5, None, 1], "none": []}},
        {"kind": "later", "key": '{"kind":"later","new":[1,{"a":null}]}', "fields": {"new": [1, {"a": None}]}},
        {"seed": 2**63 - 1},
        {"seed": -(2**63) + 1},
        {"fields": PICTURE["fields"] | {"epochs": None, "of a later version": ("a", 1)}},
    ],
)
def test_numbers_nothing_and_what_a_newer_version_has_are_no_fault(changes):
    assert problem_of(PICTURE | changes) == ""


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("key", "not json", "key is 'not json', not the compact JSON"),
        ("key", "[1,2]", "key is '[1,2]', not the compact JSON"),
        ("key", '{"kind": "mask_picture"}', "not the compact JSON"),
        ("key", '{"scheme":"sao","kind":"mask_picture"}', "not the compact JSON"),
        ("key", '{"kind":"mask_picture","kind":"mask_picture"}', "not the compact JSON"),
        ("key", '{"density":NaN,"kind":"mask_picture"}', "not the compact JSON"),
        ("key", '{"kind":"mask_picture","scheme":"\\ud800"}', "not the compact JSON"),
        ("key", "[" * 100_000, "not the compact JSON"),
        ("key", '{"scheme":"sao"}', "kind is 'mask_picture', and another in key"),
        ("kind", "training", "kind is 'training', and another in key"),
        ("kind", "\ud800", "kind has text or numbers that cannot be kept"),
        ("fields", {}, "fields has another scheme than key"),
        ("fields", PICTURE["fields"] | {"size": 9}, "fields has another size than key"),
        ("fields", PICTURE["fields"] | {"epochs": "many"}, "epochs in fields is 'many'"),
        ("metrics", {"value": "text"}, "metric value is 'text'"),
        ("metrics", {"value": [0.5, 0.25]}, "metric value is [0.5, 0.25]"),
        ("metrics", {"value": {}}, "metric value is {}"),
        ("metrics", {"value": 10**400}, "metric value is 1000"),
        ("metrics", {"value": float("inf")}, "metrics has text or numbers"),
        ("metrics", {"together": 0}, "metric together is 0"),
        ("metrics", {"together": None}, "metric together is None"),
        ("metrics", {"together": True}, "metric together is True"),
        ("metrics", {"together": 1.5}, "metric together is 1.5"),
        ("curves", {"loss": "text"}, "curve loss is not a list of numbers"),
        ("curves", {"loss": [0.5, "text"]}, "curve loss is not a list of numbers"),
        ("curves", {"loss": [[0.5]]}, "curve loss is not a list of numbers"),
        ("wall_s", -1.0, "wall_s is -1.0"),
        ("wall_s", float("inf"), "wall_s has text or numbers"),
        ("seed", 10**30, "seed is 1000"),
    ],
)
def test_what_those_that_read_rows_could_not_read_is_named(part, value, said):
    assert said in problem_of(PICTURE | {part: value})


UNSAFE = [
    "",
    ".",
    "..",
    "../../escaped",
    "/tmp/escaped",
    "a/b",
    "a\\b",
    "C:x",
    "con",
    "nul",
    "com1",
    "a.b",
    "a b",
    "A",
    "x" * 99,
]


@pytest.mark.parametrize("kind", UNSAFE)
def test_a_kind_that_is_no_plain_file_name_is_refused(kind):
    key = json.dumps({"kind": kind}, separators=(",", ":"))
    assert "kind is " in problem_of(PICTURE | {"kind": kind, "key": key})


def test_a_number_too_large_for_a_float_is_no_number_in_a_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    row = json.dumps(PICTURE | {"metrics": {"value": 0.25}}).replace("0.25", "1e999")
    path.write_text('{"orthosparse_results":1}\n' + row + "\n")
    rows, (problem,) = read_text(path)
    assert rows == []
    assert "line 2: not a row (metrics has text or numbers that cannot be kept)" in problem
