import json

import pytest

from orthosparse.lab.spectra.rows import Rows, read_rows


def test_rows_are_read_back_as_they_were_appended(tmp_path):
    rows = Rows(tmp_path / "deep" / "rows.jsonl")
    rows.append("a", 1, {"mean": 1 / 3, "name": "x"})
    rows.append("a", 2, {"mean": 2.0})
    again = Rows(rows.path)
    assert again.get("a", 1) == {"key": "a", "seed": 1, "mean": 0.333333, "name": "x"}
    assert [row["seed"] for row in read_rows(rows.path)] == [1, 2]
    assert again.has("a", 2)
    assert not again.has("b", 1)


def test_where_rows_come_from_is_told_once_for_each_run(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOSPARSE_COMMIT", "abc")
    for seeds in ((1, 2), (3,)):
        rows = Rows(tmp_path / "rows.jsonl")
        for seed in seeds:
            rows.append("a", seed, {})
    lines = [json.loads(line) for line in rows.path.read_text().splitlines()]
    assert ["run" in line for line in lines] == [True, False, False, True, False]
    assert lines[0]["run"]["commit"] == "abc"


def test_a_line_that_was_cut_off_is_dropped_and_written_again(tmp_path):
    rows = Rows(tmp_path / "rows.jsonl")
    rows.append("a", 1, {"mean": 1.0})
    whole = rows.path.read_text()
    with rows.path.open("a") as file:
        file.write('{"key":"a","se')
    again = Rows(rows.path)
    assert again.has("a", 1)
    again.append("a", 2, {"mean": 2.0})
    text = rows.path.read_text()
    assert text.startswith(whole)
    assert [row["seed"] for row in read_rows(rows.path)] == [1, 2]


@pytest.mark.parametrize(("line", "message"), [("{", "expected JSON"), ('{"key":"a"}', "expected a row with a key")])
def test_a_damaged_line_is_named(tmp_path, line, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"key":"a","seed":1}}\n{line}\n')
    with pytest.raises(ValueError, match=rf"rows\.jsonl: line 2: {message}"):
        Rows(path)
