"""The `paper` commands, on items of toy size."""

import json
import sqlite3
import sys
import types
from pathlib import Path

import pytest
from sweep_toys import row_of

from orthosparse.lab import cli
from orthosparse.lab import paper as real
from orthosparse.lab.experiments.expected_density import ExpectedDensity
from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper import queue
from orthosparse.lab.paper._tables import Column, Line, Measurement, Rendered, table_of
from orthosparse.lab.sweep.pairs import Pair
from orthosparse.lab.sweep.store import Store

LINE = Line("random", ("random",))  # of an item whose numbers the paper has


def measured(rows):
    return {("random", "resnet32/cifar10"): Measurement([float(len(rows))] * min(1, len(rows)))}


def item(title, seeds, full):
    smaller = [ExpectedDensity(8, 4)]
    return types.SimpleNamespace(
        TITLE=title,
        SEEDS=seeds,
        experiments=lambda *, smoke: smaller if smoke else full,
        render=lambda rows, smoke=False: Rendered(
            tables=[table_of(title, [Column("resnet32/cifar10", "ResNet32")], [LINE], measured(rows), item="angles")]
        ),
    )


ITEMS = {
    "densities": item("Expected density", [1, 2], [ExpectedDensity(10, 5), ExpectedDensity(12, 5)]),
    "masks": item("Masks", [1], [MaskPicture("eoi", 8, 0.25)]),
    "tiny": item(
        "Tiny", [1], [Training("mlp", "digits", model_options={"depth": 2}, epochs=9), ExpectedDensity(10, 5)]
    ),
    "needs_data": item("Needs data", [1, 2], [Training("mlp", "mnist", epochs=1)]),
}


@pytest.fixture(autouse=True)
def paper(monkeypatch, tmp_path):
    """A package `paper` of toy items, and a report that only counts."""
    written = []
    package, report = types.ModuleType("orthosparse.lab.paper"), types.ModuleType("orthosparse.lab.paper.report")
    package.ITEMS, package.__path__, package.__spec__ = ITEMS, real.__path__, real.__spec__
    entries = [
        queue.Entry("Wide", "densities", only=("size=12",), seeds=(1,), precision=None, together=None),
        queue.Entry("Rest", "densities", seeds=(1,), precision=None, together=4),
    ]
    monkeypatch.setattr(queue, "QUEUE", entries)
    report.write_report = lambda rows, out, **options: written.append((len(rows), out, options))
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setitem(sys.modules, report.__name__, report)
    monkeypatch.chdir(tmp_path)
    return written


def stored():
    return Store("runs/paper/results.sqlite").rows()


def test_list_names_every_item_with_its_status(capsys):
    assert cli.main(["paper", "run", "densities", "--seeds", "1"]) == 0
    assert cli.main(["paper", "run", "masks"]) == 0
    capsys.readouterr()
    assert cli.main(["paper", "list"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "2/4" in lines["densities"]
    assert "3/4" in lines["all"]  # cells of the paper's tables
    assert "begun" in lines["densities"]
    assert "1/1" in lines["masks"]
    assert "complete" in lines["masks"]
    assert "not yet run" in lines["needs_data"]
    assert "Needs data" in lines["needs_data"]


def test_an_empty_store_points_to_the_rows_of_the_repository(capsys):
    hint = "has no rows yet: `orthosparse paper merge results`"
    for command in ("list", "queue"):
        assert cli.main(["paper", command]) == 0
        assert hint in capsys.readouterr().out
    assert cli.main(["paper", "run", "densities", "--seeds", "1"]) == 0
    capsys.readouterr()
    for command in ("list", "queue"):
        assert cli.main(["paper", command]) == 0
        assert hint not in capsys.readouterr().out


def test_list_counts_rows_of_other_lengths_and_precisions(capsys):
    assert cli.main(["paper", "run", "tiny", "--epochs", "1", "--precision", "bf16"]) == 0
    capsys.readouterr()
    assert cli.main(["paper", "list"]) == 0
    (tiny,) = (line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["tiny"])
    assert "1/2" in tiny  # the one that is no training
    assert "begun, 1 other row " in tiny


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"ORTHOSPARSE_COMMIT": "abc+changes"}, "warning: rows will name the commit abc+changes, as files differ"),
        ({"ORTHOSPARSE_COMMIT": "", "PATH": ""}, "warning: rows will name no commit, as none is known"),  # without git
        ({"ORTHOSPARSE_COMMIT": "abc"}, ""),
    ],
)
def test_it_is_said_before_rows_are_made_that_their_commit_will_not_be_known(capsys, monkeypatch, variables, said):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["paper", "run", "masks"]) == 0
    found = capsys.readouterr().err
    assert (said in found) if said else ("warning" not in found)
    assert cli.main(["paper", "run", "masks"]) == 0  # has all its rows
    assert "warning" not in capsys.readouterr().err


def test_run_makes_rows_and_a_second_time_nothing(capsys):
    assert cli.main(["paper", "run", "densities", "masks"]) == 0
    assert "5 pairs run, 0 had a row" in capsys.readouterr().out
    rows = stored()
    assert sorted((row["kind"], row["seed"]) for row in rows) == [
        *[("expected_density", seed) for seed in (1, 1, 2, 2)],
        ("mask_picture", 1),
    ]
    assert cli.main(["paper", "run", "densities", "masks"]) == 0
    assert "0 pairs run, 5 had a row" in capsys.readouterr().out
    assert stored() == rows


def test_smoke_runs_the_tiny_version():
    assert cli.main(["paper", "run", "densities", "--smoke", "--seeds", "7"]) == 0
    assert [(row["fields"]["size"], row["seed"]) for row in stored()] == [(8, 7)]


def test_epochs_replace_those_of_every_training_and_nothing_else():
    assert cli.main(["paper", "run", "tiny", "--epochs", "1"]) == 0
    assert [(row["kind"], row["fields"].get("epochs")) for row in stored()] == [
        ("training", 1),
        ("expected_density", None),
    ]


def test_the_precision_replaces_that_of_every_training_and_nothing_else():
    assert cli.main(["paper", "run", "tiny", "--epochs", "1", "--precision", "bf16"]) == 0
    assert [(row["kind"], row["fields"].get("precision")) for row in stored()] == [
        ("training", "bf16"),
        ("expected_density", None),
    ]
    assert '"precision":"bf16"' in stored()[0]["key"]


def test_the_precision_that_a_training_has_anyway_makes_no_other_row(capsys):
    assert cli.main(["paper", "run", "tiny", "--epochs", "1", "--precision", "tf32"]) == 0
    assert cli.main(["paper", "run", "tiny", "--epochs", "1"]) == 0
    assert "0 pairs run, 2 had a row" in capsys.readouterr().out
    assert cli.main(["paper", "run", "tiny", "--epochs", "1", "--precision", "fp32"]) == 0
    assert "1 pair run, 1 had a row" in capsys.readouterr().out


def test_a_budget_leaves_what_cannot_end_in_time(capsys, monkeypatch):
    monkeypatch.setattr(ExpectedDensity, "cost", lambda self: 9000.0)
    assert cli.main(["paper", "run", "densities", "--budget", "5m", "--seeds", "1"]) == 0
    assert "0 pairs run, 0 had a row, 2 left for want of time" in capsys.readouterr().out


def test_the_queue_counts_each_missing_pair_once_and_estimates_from_rows_of_the_device(capsys, monkeypatch):
    monkeypatch.setattr(ExpectedDensity, "cost", lambda self: 600.0)
    assert cli.main(["paper", "queue", "--on", "a device", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["title"], each["missing"], each["pairs"], each["minutes"]) for each in found] == [
        ("Wide", 1, 1, 10.0),
        ("Rest", 1, 2, 10.0),
    ]
    assert cli.main(["paper", "run", "densities", "--only", "size=12", "--seeds", "1"]) == 0
    capsys.readouterr()
    assert cli.main(["paper", "queue"]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert lines["Wide"][2:5] == ["0", "of", "1"]
    assert float(lines["Rest"][-1]) < 10  # as fast as the other was here


def test_the_queue_says_where_its_minutes_are_guesses_and_makes_no_store(capsys):
    assert cli.main(["paper", "queue", "--on", "a device"]) == 0
    assert not Path("runs").exists()
    assert cli.main(["paper", "run", "densities", "--only", "size=12", "--seeds", "1"]) == 0
    capsys.readouterr()
    assert cli.main(["paper", "queue", "--on", "a device"]) == 0
    found = capsys.readouterr()
    assert "~" in found.out
    assert (
        "~ marks what was not measured on a device yet: its minutes may be far off; there are rows of cpu ("
        in found.err
    )
    assert cli.main(["paper", "queue"]) == 0
    assert capsys.readouterr().err == ""


def test_the_queue_in_json_marks_its_guesses_by_a_key_and_explains_no_sign(capsys):
    assert cli.main(["paper", "queue", "--on", "a device", "--json"]) == 0
    found = capsys.readouterr()
    assert [each["rough"] for each in json.loads(found.out)] == [True, True]
    assert found.err == ""


def test_minutes_on_an_empty_store_point_to_the_rows_of_the_repository(capsys):
    hint = "has no rows yet: `orthosparse paper merge results`"
    assert cli.main(["paper", "run", "--minutes", "5", "--device", "cpu"]) == 0
    assert hint in capsys.readouterr().err
    assert cli.main(["paper", "run", "--minutes", "5", "--device", "cpu"]) == 0
    assert hint not in capsys.readouterr().err


def test_minutes_take_the_queue_in_its_order(capsys):
    assert cli.main(["paper", "run", "--minutes", "5", "--device", "cpu"]) == 0
    assert "2 pairs run, 0 had a row" in capsys.readouterr().out
    assert sorted(row["fields"]["size"] for row in stored()) == [10, 12]
    assert cli.main(["paper", "run", "masks", "--minutes", "5", "--device", "cpu"]) == 0
    assert "1 pair run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "item: expected at least one, or --minutes"),
        (["run", "--minutes", "0"], "minutes: expected more than 0"),
        (["run", "--minutes", "1", "--smoke"], "smoke: expected items to run; what `paper queue` lists has its own"),
        (["run", "--minutes", "1", "--seeds", "1"], "seeds: expected items to run"),
        (["run", "--minutes", "1", "--only", "model=mlp"], "only: expected items to run"),
        (["run", "--minutes", "1", "--epochs", "1"], "epochs: expected items to run"),
        (["run", "--minutes", "1", "--precision", "bf16"], "precision: expected items to run"),
        (["run", "--minutes", "1", "--together", "2"], "together: expected items to run"),
        (["run", "masks", "--minutes", "1", "--budget", "5m"], "without --budget; got 1"),
        (["run", "masks", "--minutes", "1", "--engine", "ray"], "with --engine local"),
        (["run", "densties"], "item: expected one of densities, masks, needs_data, tiny; got 'densties'"),
        (["run", "masks", "--seeds", "1,two"], "seeds: expected whole numbers with commas between them"),
        (["run", "masks", "--seeds", ""], "seeds: expected whole numbers with commas between them"),
        (["run", "masks", "--seeds", "1,,2"], "seeds: expected whole numbers with commas between them"),
        (["run", "masks", "--seeds", "-1"], "seeds: expected whole numbers with commas between them"),
        (["run", "masks", "--engine", "slurm"], "engine: expected one of local, ray; got 'slurm'"),
        (["run", "masks", "--budget", "soon"], "budget: expected a time like 25m"),
        (["run", "masks", "--device", "tpu"], "device: expected auto, cpu, cuda"),
        (["run", "masks", "--precision", "bf16"], "precision: expected an item with trainings"),
        (["run", "densities", "masks", "--epochs", "3"], "epochs: expected an item with trainings"),
        (["run", "masks", "--precision", "fp8"], "precision: expected one of bf16, fp32, fp64, tf32; got 'fp8'"),
        (["run", "tiny", "--precision", ""], "precision: expected one of bf16, fp32, fp64, tf32; got ''"),
        (["run", "masks", "--jobs", "0"], "jobs"),
        (["run", "masks", "--engine", "ray", "--gpus", "-1"], "gpus"),
        (["run", "masks", "--minutes", "nan"], "minutes: expected more than 0"),
        (["run", "masks", "--minutes", "inf"], "minutes: expected more than 0"),
        (["run", "masks", "--address", "host:1"], "take --engine ray"),
        (["run", "masks", "--engine", "ray", "--address", "nowhere"], "address: expected HOST:PORT"),
        (["prepare", "densties", "--together", "2"], "item: expected one of densities, masks, needs_data, tiny"),
        (["prepare", "masks", "--together", "2", "--precision", "bf16"], "precision: expected an item with trainings"),
        (["prepare", "tiny", "--together", "2", "--device", "tpu"], "device: expected auto, cpu, cuda"),
        (["report", "--out", "page.html"], "paper run` or `paper merge` creates it"),
        (["merge", "missing.jsonl"], "files: expected files or folders; there is none at missing.jsonl"),
    ],
)
def test_what_is_asked_wrongly_is_one_line_and_leaves_nothing(capsys, tmp_path, arguments, message):
    assert cli.main(["paper", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert "nowhere" in arguments or not list(tmp_path.iterdir())


def test_a_cluster_that_does_not_answer_is_one_line(capsys):
    pytest.importorskip("ray")
    assert cli.main(["paper", "run", "masks", "--engine", "ray", "--address", "127.0.0.1:1"]) == 1
    assert "no Ray cluster answers at 127.0.0.1:1" in capsys.readouterr().err


def test_data_that_is_not_there_is_one_line_with_the_command_that_gets_it(capsys):
    assert cli.main(["paper", "run", "needs_data", "masks", "--root", "nowhere"]) == 1
    captured = capsys.readouterr()
    assert "1 pair run, 0 had a row, 2 failed" in captured.out
    (line,) = [line for line in captured.err.splitlines() if "nowhere" in line]
    assert line.startswith("error: 2 pairs, such as training mlp mnist")
    assert "orthosparse data mnist --root" in line
    assert "nowhere" in line


def test_merge_adds_rows_names_what_is_torn_and_exports_a_file_for_each_kind(capsys, tmp_path):
    assert cli.main(["paper", "run", "densities", "masks"]) == 0
    assert cli.main(["paper", "merge", "--export", "results"]) == 0
    files = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert files == ["expected_density.jsonl", "mask_picture.jsonl"]
    assert cli.main(["paper", "merge", "results", "--store", "other.sqlite"]) == 0
    assert Store("other.sqlite").rows() == stored()
    torn = tmp_path / "results" / "expected_density.jsonl"
    torn.write_bytes(torn.read_bytes()[:-100])
    capsys.readouterr()
    assert cli.main(["paper", "merge", "--store", "fresh.sqlite"]) == 1
    captured = capsys.readouterr()
    assert "2 files: 4 rows added, 0 known already" in captured.out
    assert "line 5: not a whole row, left out" in captured.err
    assert cli.main(["paper", "merge", str(torn), "--export", "all.jsonl"]) == 1
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    assert len(lines) == 6
    assert json.loads(lines[0]) == {"orthosparse_results": 1}


def test_merge_adds_nothing_if_one_of_the_files_is_missing(tmp_path):
    assert cli.main(["paper", "run", "masks"]) == 0
    assert cli.main(["paper", "merge", "--export", "results"]) == 0
    assert cli.main(["paper", "merge", "results/mask_picture.jsonl", "missing.jsonl", "--store", "other.sqlite"]) == 2
    assert not (tmp_path / "other.sqlite").exists()


def test_merge_says_what_differs(capsys, tmp_path):
    assert cli.main(["paper", "run", "masks"]) == 0
    (row,) = stored()
    row["metrics"]["count"] += 1
    (tmp_path / "theirs.jsonl").write_text('{"orthosparse_results":1}\n' + json.dumps(row | {"device": "other"}) + "\n")
    capsys.readouterr()
    assert cli.main(["paper", "merge", "theirs.jsonl"]) == 0
    count = row["metrics"]["count"]
    error = capsys.readouterr().err
    assert f"differs (stored, given): device ('{stored()[0]['device'][:20]}" in error
    assert error.endswith(f"metrics.count ({count - 1}, {count})\n")


@pytest.mark.parametrize("kind", ["../../escaped", "{}/absolute", "", "a/b", "..", "nul"])
@pytest.mark.parametrize("kept", [False, True])
def test_an_export_never_writes_outside_its_folder(capsys, tmp_path, kind, kept):
    """Neither rows that are merged, nor those that an older version let into the store."""
    kind, home = kind.format(tmp_path), tmp_path / "d" / "e"
    row = row_of(Pair(MaskPicture("eoi"), 1), kind=kind, key=json.dumps({"kind": kind}, separators=(",", ":")))
    evil, store = tmp_path / "evil.jsonl", home / "s.sqlite"
    evil.write_text('{"orthosparse_results":1}\n' + json.dumps(row) + "\n")
    if kept:
        database = sqlite3.connect(Store(store).path)
        database.execute("INSERT INTO rows VALUES (?, 1, ?, ?)", (row["key"], kind, json.dumps(row)))
        database.commit()
        database.close()
    before = {path for path in tmp_path.rglob("*") if home / "out" not in path.parents}
    files = [] if kept else [str(evil)]
    code = cli.main(["paper", "merge", *files, "--store", str(store), "--export", str(home / "out")])
    error = capsys.readouterr().err
    assert code == (2 if kept else 1), error
    assert "kind is " in error or "kind: expected" in error
    after = {
        path for path in tmp_path.rglob("*") if home / "out" not in path.parents and not path.name.startswith("s.sq")
    }
    assert after <= before | {home, home / "out", home.parent}
    assert not list((home / "out").rglob("*"))


def test_a_report_is_no_folder(capsys, tmp_path):
    assert cli.main(["paper", "run", "masks"]) == 0
    assert cli.main(["paper", "report", "--out", str(tmp_path)]) == 2
    assert "out: expected a file; got the folder" in capsys.readouterr().err


def test_report_is_given_all_rows(paper):
    assert cli.main(["paper", "run", "densities"]) == 0
    assert cli.main(["paper", "report", "--out", "page.md", "--format", "md"]) == 0
    ((count, out, options),) = paper
    assert (count, str(out), options) == (4, "page.md", {"format": "md", "smoke": False})


@pytest.mark.parametrize(
    ("out", "more", "expected"),
    [
        ("t.tex", [], "tex"),
        ("T.MD", [], "md"),
        ("page", [], "html"),
        ("page.pdf", [], "pdf"),  # which is refused
        ("notes.txt", ["--format", "csv"], "csv"),
    ],
)
def test_the_name_of_a_report_says_its_format_where_no_option_does(paper, out, more, expected):
    assert cli.main(["paper", "run", "masks"]) == 0
    assert cli.main(["paper", "report", "--out", out, *more]) == 0
    ((_, _, options),) = paper
    assert options["format"] == expected


def test_smoke_takes_one_seed_unless_seeds_are_given():
    assert cli.main(["paper", "run", "densities", "--smoke"]) == 0
    assert [row["seed"] for row in stored()] == [1]


def test_list_and_run_and_merge_give_json_and_nothing_else(capsys):
    assert cli.main(["paper", "run", "densities", "masks", "--seeds", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "run": 3,
        "had": 0,
        "elsewhere": 0,
        "postponed": [],
        "failed": [],
        "store": "runs/paper/results.sqlite",
    }
    assert cli.main(["paper", "list", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    about = {"status": "begun", "title": "Expected density"}
    counts = {"done": 2, "pairs": 4, "others": 0, "our_cells": 1, "cells": 1}
    assert first == {"item": "densities", **counts, **about}
    assert cli.main(["paper", "merge", "--export", "all.jsonl", "--json"]) == 0
    merged = json.loads(capsys.readouterr().out)
    assert (merged["added"], merged["problems"], merged["exported"]) == (0, [], {"all.jsonl": 3})


def test_no_pair_is_begun_whose_data_is_not_there(capsys, monkeypatch):
    monkeypatch.setattr(Training, "run", None)
    for more in ([], ["--jobs", "2"], ["--minutes", "1"]):
        assert cli.main(["paper", "run", "needs_data", "--seeds", "1", "--root", "nowhere", *more]) == 1
        captured = capsys.readouterr()
        assert captured.out.startswith("0 pairs run, 0 had a row, 1 failed")
        assert captured.err.count("\n") == captured.err.count("orthosparse data mnist") == 1


def test_a_failed_pair_is_in_the_json_and_in_the_exit_code(capsys):
    assert cli.main(["paper", "run", "needs_data", "--seeds", "1", "--root", "nowhere", "--json"]) == 1
    (failed,) = json.loads(capsys.readouterr().out)["failed"]
    assert "orthosparse data mnist --root" in failed["error"]


def test_only_runs_what_passes_the_filters():
    assert cli.main(["paper", "run", "densities", "masks", "--only", "size=12", "--seeds", "1"]) == 0
    assert [row["fields"]["size"] for row in stored()] == [12]
    assert cli.main(["paper", "run", "densities", "masks", "--only", "mask_picture"]) == 0
    assert sorted(row["kind"] for row in stored()) == ["expected_density", "mask_picture"]


def test_a_filter_that_fits_nothing_is_answered_with_what_there_is(capsys):
    assert cli.main(["paper", "run", "densities", "--only", "size=13"]) == 2
    assert "size is one of 10, 12; got 13" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--jobs", "2"]])
def test_together_trains_networks_of_one_shape_as_one(capsys, more):
    assert cli.main(["paper", "run", "tiny", "--epochs", "1", "--together", "4", "--device", "cpu", *more]) == 0
    assert "2 pairs run" in capsys.readouterr().out
    assert {row["kind"]: row["metrics"].get("together") for row in stored()} == {
        "training": 1,
        "expected_density": None,
    }


def test_prepared_starts_are_those_that_a_run_goes_on_from(capsys, tmp_path, monkeypatch):
    shape = ["--epochs", "1", "--together", "4", "--device", "cpu"]
    assert cli.main(["paper", "prepare", "tiny", *shape]) == 0
    said = capsys.readouterr().out
    assert "1 start of 1 stack in " in said
    assert "none is kept of 1 pair outside of stacks" in said
    assert not stored()
    (made,) = tmp_path.rglob("starts/000/*.safetensors")
    written = made.stat().st_mtime_ns
    assert cli.main(["paper", "prepare", "tiny", *shape, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["starts"], found["problems"]) == (1, [])
    assert made.stat().st_mtime_ns == written
    monkeypatch.setattr("orthosparse.lab.training.starts._made", None)  # nobody makes another
    assert cli.main(["paper", "run", "tiny", *shape]) == 0
    assert len(stored()) == 2


def test_starts_whose_data_is_not_there_are_named(capsys):
    assert cli.main(["paper", "prepare", "needs_data", "--together", "2", "--device", "cpu"]) == 1
    assert "FileNotFoundError" in capsys.readouterr().err
