import pkgutil
import subprocess
import sys

import pytest

from orthosparse.lab import cli, commands

COMMANDS = [found.name for found in pkgutil.iter_modules(commands.__path__) if not found.name.startswith("_")]


def _with_command(monkeypatch, tmp_path, name, body):
    (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{commands.__name__}.{name}", raising=False)


def test_every_command_file_holds_an_entry_of_its_own_name():
    for name in COMMANDS:
        command = cli.app.info.cls().get_command(None, name)
        assert command.name == name
        assert command.help or command.callback.__doc__ or command.commands


def test_help_lists_the_commands(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)


def test_no_arguments_show_help_and_ask_for_a_command(capsys):
    assert cli.main([]) in (0, 2)
    captured = capsys.readouterr()
    assert "Usage" in captured.out + captured.err


def test_the_version_is_printed(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("orthosparse 0.")


def test_an_unknown_command_is_one_line_and_exit_code_2(capsys):
    assert cli.main(["trian"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "trian" in error


@pytest.mark.parametrize(
    ("raised", "code"), [("ValueError('density: expected 0 to 1; got 2')", 2), ("RuntimeError('boom')", 1)]
)
def test_an_error_is_one_line_and_an_exit_code(monkeypatch, tmp_path, capsys, raised, code):
    _with_command(monkeypatch, tmp_path, "failing", f"def failing() -> None:\n    'Fail.'\n    raise {raised}\n")
    assert cli.main(["failing"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("arguments", [["--debug", "failing"], ["failing", "--debug"]])
def test_debug_shows_the_trace_wherever_it_stands(monkeypatch, tmp_path, capsys, arguments):
    _with_command(monkeypatch, tmp_path, "failing", "def failing() -> None:\n    'Fail.'\n    raise ValueError('x')\n")
    assert cli.main(arguments) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_ends_with_130(monkeypatch, tmp_path, capsys):
    _with_command(monkeypatch, tmp_path, "slow", "def slow() -> None:\n    'Wait.'\n    raise KeyboardInterrupt\n")
    assert cli.main(["slow"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_warnings_of_the_library_reach_stderr_once(monkeypatch, tmp_path, capsys):
    body = "import logging\ndef warn() -> None:\n    'Warn.'\n    logging.getLogger('orthosparse.x').warning('look')\n"
    _with_command(monkeypatch, tmp_path, "warn", body)
    assert (cli.main(["warn"]), cli.main(["warn"])) == (0, 0)
    assert capsys.readouterr().err == "WARNING: look\n" * 2


def test_a_command_may_have_commands_of_its_own(monkeypatch, tmp_path, capsys):
    body = (
        "import typer\nnested = typer.Typer()\n"
        "@nested.command()\ndef one() -> None:\n    'One.'\n    print('one')\n"
        "@nested.command()\ndef two() -> None:\n    'Two.'\n    print('two')\n"
    )
    _with_command(monkeypatch, tmp_path, "nested", body)
    assert cli.main(["nested", "two"]) == 0
    assert capsys.readouterr().out == "two\n"


def test_a_command_may_end_with_a_code_of_its_own(monkeypatch, tmp_path):
    body = "import typer\ndef leave() -> None:\n    'Leave.'\n    raise typer.Exit(3)\n"
    _with_command(monkeypatch, tmp_path, "leave", body)
    assert cli.main(["leave"]) == 3


def test_nothing_is_coloured_off_a_terminal():
    code = "from orthosparse.lab import cli; cli.main(['--help']); cli.main(['nonsense'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
