import io
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError

import pytest
import typer

from orthosparse.lab import cli, commands
from orthosparse.schemes import SCHEMES

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


@pytest.mark.parametrize(
    ("package", "extra"),
    [("timm.models", "timm"), ("matplotlib", "lab"), ("sklearn", "lab"), ("PIL", "lab"), ("onnxscript", "onnx")],
)
def test_a_package_that_is_not_installed_is_answered_with_how_to_install_it(
    monkeypatch, tmp_path, capsys, package, extra
):
    monkeypatch.setitem(sys.modules, package, None)
    _with_command(monkeypatch, tmp_path, "lacking", f"def lacking() -> None:\n    'Lack.'\n    import {package}\n")
    assert cli.main(["lacking"]) == cli.MISUSED
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.endswith(f"; pip install 'orthosparse[{extra}]'\n")


@pytest.mark.parametrize("package", ["wandb", "helpers_of_mine", "rays", "transformers", "pytorch_lightning", "mkdocs"])
def test_a_module_that_no_extra_for_users_brings_is_named_without_one(monkeypatch, tmp_path, capsys, package):
    monkeypatch.setitem(sys.modules, package, None)
    _with_command(monkeypatch, tmp_path, "lacking", f"def lacking() -> None:\n    'Lack.'\n    import {package}\n")
    assert cli.main(["lacking"]) == cli.MISUSED
    assert "pip" not in capsys.readouterr().err


def test_the_program_without_the_labs_packages_says_what_it_needs():
    code = "import sys; sys.modules['typer'] = None; from orthosparse.lab.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (cli.MISUSED, "")
    assert done.stderr.startswith("error: the program needs more than the library; pip install 'lightning-fabric>=")


@pytest.fixture
def source_tree(monkeypatch):
    """Python as it is where the package lies in a folder on the path, and nothing tells what it requires."""

    def from_name(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(Distribution, "from_name", from_name)


def test_a_source_tree_has_no_version(source_tree, capsys):
    assert cli.main(["--version"]) == cli.DONE
    assert capsys.readouterr().out == "orthosparse (not installed)\n"


def test_a_package_that_a_source_tree_lacks_is_one_line_without_an_extra(source_tree, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    _with_command(monkeypatch, tmp_path, "lacking", "def lacking() -> None:\n    'Lack.'\n    import matplotlib\n")
    assert cli.main(["lacking"]) == cli.MISUSED
    error = capsys.readouterr().err
    assert error.startswith("error: import of matplotlib halted")
    assert error.count("\n") == 1
    assert "pip" not in error


def test_the_program_of_a_source_tree_names_the_package_that_it_lacks():
    code = (
        "import importlib.metadata as metadata, sys\n"
        "def requires(name):\n    raise metadata.PackageNotFoundError(name)\n"
        "metadata.requires, sys.modules['typer'] = requires, None\nimport orthosparse.lab.cli\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (cli.MISUSED, "")
    assert done.stderr.startswith("error: the program needs more than the library: import of typer halted")
    assert done.stderr.count("\n") == 1


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


def _commands(group=None, path=()):
    """Every command and subcommand: its words, and what typer made of it."""
    group = group or typer.main.get_command(cli.app)
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield (*path, name), command
        if hasattr(command, "list_commands"):
            yield from _commands(command, (*path, name))


ALL = dict(_commands())


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_shows_examples_and_each_of_them_is_understood(words, capsys):
    assert cli.main([*words, "--help"]) == 0
    out = capsys.readouterr().out
    examples = re.findall(r"^ +(orthosparse .*)$", out.split("Examples:")[1].split("\n\n")[0], re.MULTILINE)
    assert examples
    for example in examples:
        given = shlex.split(example)[1:]
        assert tuple(given[: len(words)]) == words
        named = max((each for each in ALL if tuple(given[: len(each)]) == each), key=len)
        ALL[named].make_context(named[-1], given[len(named) :])  # raises what the program would complain of


def test_the_exit_codes_are_in_the_help(capsys):
    assert cli.main(["--help"]) == 0
    reported = re.findall(r"^ +(\d+)  \w+", capsys.readouterr().out.split("Exit codes:")[1], re.MULTILINE)
    assert [int(code) for code in reported] == [cli.DONE, cli.FAILED, cli.MISUSED, cli.INTERRUPTED]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["trian"], "error: No such command 'trian'. Did you mean 'train'? Try: orthosparse --help\n"),
        (["train", "--modle", "mlp"], "Try: orthosparse train --help\n"),
        (["data"], "error: Missing argument 'NAME'. Try: orthosparse data --help\n"),
    ],
)
def test_a_wrong_word_is_answered_with_the_help_to_read(words, line, capsys):
    assert cli.main(words) == cli.MISUSED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(line)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "got"),
    [
        (["train", "--epochs", "ten"], "'ten'"),
        (["train", "--density", ""], "''"),
        (["paper", "run", "efficiency", "--jobs", "0"], "0"),
    ],
)
def test_a_wrong_value_is_named_beside_its_option_and_what_was_expected(words, got, capsys):
    assert cli.main(words) == cli.MISUSED
    named, expected = capsys.readouterr().err.split(": ", 2)[1:]
    assert words[-2] in named
    assert got in expected


def test_asked_for_nothing_a_command_answers_with_its_help_as_it_is(capsys):
    assert cli.main(["paper"]) == cli.MISUSED
    captured = capsys.readouterr()
    assert captured.err.startswith("Usage: orthosparse paper ")
    assert "error" not in captured.err
    assert "..." in captured.err


@pytest.mark.parametrize(
    ("resumes", "given", "line"),
    [
        ("RESUMES_WITH = ('--resume',)", ["slow", "--name", "a b"], "orthosparse slow --name 'a b' --resume"),
        ("RESUMES_WITH = ('--resume',)", ["slow", "--resume"], "orthosparse slow --resume"),
        ("RESUMES_WITH = ()", ["slow", "--debug"], "orthosparse slow"),
    ],
)
def test_an_interrupt_names_the_command_that_goes_on(monkeypatch, tmp_path, capsys, resumes, given, line):
    body = f"{resumes}\ndef slow(name: str = '', resume: bool = False) -> None:\n    'Wait.'\n"
    body += "    raise KeyboardInterrupt\n"
    _with_command(monkeypatch, tmp_path, "slow", body)
    assert cli.main(given) == cli.INTERRUPTED
    assert capsys.readouterr().err.splitlines()[-1] == f"interrupted; continue with: {line}"


def _completed(line):
    """What bash offers for a line; the process tells whether it imported torch."""
    words = line.split(" ")
    code = (
        "import sys\nfrom orthosparse.lab import cli\n"
        "try:\n    cli.main()\nfinally:\n    print('torch' in sys.modules, file=sys.stderr)\n"
    )
    environment = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_ORTHOSPARSE_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    assert done.stderr == "False\n", "a key press must not import torch"
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("orthosparse pa", ["paper"]),
        ("orthosparse paper r", ["report", "run"]),
        ("orthosparse paper run contemporary eff", ["efficiency", "efficientnet"]),
        ("orthosparse train --mod", ["--model", "--model-option"]),
        ("orthosparse train --model resnet3", ["resnet32"]),
        ("orthosparse train --distribution snip", ["snip", "snip_iterative"]),
        ("orthosparse inspect mlp --scheme ", sorted(SCHEMES)),
        ("orthosparse data cifar", ["cifar10", "cifar100", "cifar10_64"]),
    ],
)
def test_the_shell_completes_commands_options_and_names(line, offered):
    assert sorted(_completed(line)) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_shown(shell):
    environment = {**os.environ, "_ORTHOSPARSE_COMPLETE": f"source_{shell}"}
    done = subprocess.run(
        [sys.executable, "-m", "orthosparse"], capture_output=True, text=True, check=True, env=environment
    )
    assert f"_ORTHOSPARSE_COMPLETE=complete_{shell}" in done.stdout


def test_completion_can_be_installed(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    program = [sys.executable, "-m", "orthosparse", "--install-completion", "bash"]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    assert "bash completion installed" in done.stdout
    assert "_ORTHOSPARSE_COMPLETE" in "".join(path.read_text() for path in tmp_path.rglob("*.sh"))


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("declined", "coloured"), [("", True), ("1", False)])
def test_colours_are_for_terminals_and_not_for_those_who_decline_them(monkeypatch, tmp_path, declined, coloured):
    body = (
        "from orthosparse.lab.rendering.contents import plain_table\n"
        "from orthosparse.lab.rendering.terminal import console, print_table\n"
        "def shown() -> None:\n    'Show.'\n"
        "    print_table(plain_table(['start'], [['EOI']], roles=['eoi']), console())\n"
    )
    _with_command(monkeypatch, tmp_path, "shown", body)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", declined)
    monkeypatch.setattr(sys, "stdout", terminal := _Terminal())
    assert cli.main(["shown"]) == 0
    assert "EOI" in terminal.getvalue()
    assert bool(re.search(r"\x1b\[[\d;]*38;", terminal.getvalue())) == coloured
