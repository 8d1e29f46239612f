import inspect
import os
from dataclasses import fields
from typing import Any

import pytest
import typer

from orthosparse.lab import cli
from orthosparse.lab.commands._options import (
    ROOT,
    check_at_least,
    folder_name,
    given_of,
    listing,
    matching,
    named_value,
    whole_numbers,
    with_fields,
)
from orthosparse.lab.names import TABLES, names_of
from orthosparse.lab.training import Recipe, Run


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("a=1", ("a", 1)),
        ("a=0.5", ("a", 0.5)),
        ("a=b-c", ("a", "b-c")),
        ("a=true", ("a", True)),
        ("a=x=y", ("a", "x=y")),
        ("a=", ("a", "")),
    ],
)
def test_a_value_is_json_where_it_can_be(text, pair):
    assert named_value(text) == pair


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_a_name_and_an_equals_sign_are_needed(text):
    with pytest.raises(ValueError, match="option: expected NAME=VALUE; got"):
        named_value(text)


def test_numbers_are_taken_once_each_in_their_order():
    assert whole_numbers(" 2,1, 2") == [2, 1]


@pytest.mark.parametrize("text", ["", "1,,2", "-1", "1.5", "one", "²"])
def test_what_is_no_list_of_whole_numbers_is_refused(text):
    with pytest.raises(ValueError, match="seeds: expected whole numbers with commas between them, such as 1,2,3; got"):
        whole_numbers(text)


def test_a_number_below_the_least_is_named_and_one_that_was_not_given_is_not():
    check_at_least(1, samples=1, limit=None)
    with pytest.raises(ValueError, match="limit: expected 1 or more; got -1"):
        check_at_least(1, samples=1, limit=-1)


@pytest.mark.parametrize("option", TABLES)
def test_every_name_of_a_table_is_taken_in_any_case_and_listed(option):
    names = names_of(option)
    assert [matching(option)(name.upper()) for name in names] == list(names)
    assert matching(option)([name.title() for name in names]) == list(names)
    assert all(name in listing(option, "What it is.") for name in names)
    assert matching(option)("no such name") == "no such name"
    assert matching(option)(None) is None


def test_every_command_that_takes_a_root_has_the_same_default():
    group = typer.main.get_command(cli.app)
    context = typer.Context(group)
    defaults = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        for each in getattr(command, "commands", {name: command}).values():
            defaults |= {f"{name} {each.name}": p.default for p in each.params if p.name == "root"}
    assert len(defaults) > 5
    assert {str(default) for name, default in defaults.items() if name != "bench training"} == {str(ROOT)}


def _options(**how):
    @with_fields(**how)
    def command(density: float = 0.5, seed: int = 1, **given: Any) -> None:
        """Do nothing."""

    return inspect.signature(command).parameters


def test_every_field_is_an_option_with_the_fields_own_help_and_default():
    options = _options()
    assert options.keys() == {field.name for part in (Run, Recipe) for field in fields(part)} | {"seed"}
    for field in fields(Run):
        if field.name not in ("recipe", "density"):
            assert options[field.name].annotation.__metadata__[0].help.startswith(field.metadata["help"])
    assert options["distribution"].default == "erk"
    assert options["model"].default is inspect.Parameter.empty
    assert all(options[field.name].default is None for field in fields(Recipe))


def test_a_command_may_say_a_field_otherwise_or_leave_it_out():
    assert _options()["density"].default == 0.5
    assert "scheme" not in _options(without={"scheme"})


def test_lists_become_what_a_training_takes():
    given = {"options": ["tap=random", "iterations=3"], "exclude": ["fc*"], "model_options": None, "epochs": None}
    assert given_of(given) == {
        "options": {"tap": "random", "iterations": 3},
        "exclude": ("fc*",),
        "model_options": {},
        "epochs": None,
    }


every_command_with_out = pytest.mark.parametrize(
    "command",
    [
        "demo --quick",
        "inspect mlp --data digits",
        "spectra --limit 1",
        "train --model mlp --data digits --epochs 1",
        "together --data digits --depth 4 --width 8 --epochs 1 --start dense",
    ],
)


@pytest.mark.parametrize("inside", [False, True])
@every_command_with_out
def test_a_file_in_the_place_of_the_folder_is_said_before_anything_else(command, inside, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "file" / "run" if inside else tmp_path / "file"
    assert cli.main([*command.split(), "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"error: out: expected a folder; {tmp_path / 'file'} is a file\n"


@pytest.fixture
def locked(tmp_path):
    """A folder that nobody may write to."""
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere")
    yield folder
    folder.chmod(0o755)


@pytest.mark.parametrize("name", ["", "new/run"])
@every_command_with_out
def test_a_folder_that_may_not_be_written_to_is_said_before_anything_else(command, name, locked, capsys):
    assert cli.main([*command.split(), "--out", str(locked / name)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"error: out: expected a folder to write to; there is no permission to write in {locked}\n"


def test_a_file_of_rows_that_cannot_be_written_is_said_before_anything_is_measured(locked, tmp_path, capsys):
    for out in (tmp_path, locked / "rows.jsonl"):
        assert cli.main(["bench", "sampler", "observation", "--quick", "--out", str(out)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("error: out: expected a f")


def test_a_file_in_the_place_of_the_data_is_said_once(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert cli.main(["data", "mnist", "--root", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"error: root: expected a folder; {tmp_path / 'file'} is a file\n"


@pytest.mark.parametrize("letter", ["1", "é", "数", "\U0001d54e"])
def test_a_name_too_long_for_a_folder_is_cut_and_stays_another_for_another_run(tmp_path, letter):
    one, other = (folder_name(f"together-{letter * 200}{last}") for last in "12")
    assert one != other
    assert len(one.encode()) == len(other.encode()) <= 200
    (tmp_path / one).mkdir()


def test_a_name_short_enough_for_a_folder_is_kept_whatever_its_bytes():
    for name in ("together-mlp-seeds1,2", "数" * 66, "latin-\udce9.py"):  # the last as Python reads bytes of no UTF-8
        assert folder_name(name) == name
