from pathlib import Path

import pytest

from orthosparse.lab.cli import main

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_one_command_gives_rows_and_pictures_and_the_same_again_computes_nothing(tmp_path, capsys):
    arguments = ["spectra", "--root", str(FIXTURES), "--out", str(tmp_path), "--limit", "3", "--ai-iterations", "20"]
    assert main(arguments) == 0
    assert "3 rows in" in capsys.readouterr().out
    names = ["rows.sqlite", "singular_values.jsonl", "singular_values.png", "singular_values.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    before = (tmp_path / names[1]).read_text()
    assert main(arguments) == 0
    assert (tmp_path / names[1]).read_text() == before


def test_missing_data_is_answered_with_the_command_that_brings_it(tmp_path, capsys):
    assert main(["spectra", "--root", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert f"`orthosparse data mnist --root {tmp_path}`" in capsys.readouterr().err


def test_seeds_that_are_none_are_refused(tmp_path, capsys):
    assert main(["spectra", "--root", str(FIXTURES), "--seeds", "1,b", "--out", str(tmp_path)]) == 2
    assert "seeds: expected whole numbers with commas between them, such as 1,2,3; got '1,b'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--compat", "foo"], "compat: expected one of paper-code; got 'foo'"),
        (["--limit", "0"], "limit: expected 1 or more; got 0"),
        (["--limit", "-1"], "limit: expected 1 or more; got -1"),
        (["--ai-iterations", "-5"], "ai_iterations: expected 0 or more; got -5"),
    ],
)
def test_a_wrong_option_is_one_line_before_anything_is_made(tmp_path, capsys, more, expected):
    out = tmp_path / "out"
    assert main(["spectra", "--root", str(FIXTURES), "--limit", "1", "--out", str(out), *more]) == 2
    assert capsys.readouterr().err == f"error: {expected}\n"
    assert not out.exists()
