"""The `orthosparse` program: finds its commands, and turns errors into one line and an exit code.

A command is a file in ``lab/commands``: ``NAME.py`` with a function ``NAME`` (or a ``typer.Typer`` called ``NAME`` when
it has commands of its own). It is imported only when it is asked for, and imports what is heavy when it runs. A command
that can go on after an interrupt says so by ``RESUMES_WITH``, the words that it needs beside those it was given.
"""

import contextlib
import importlib
import logging
import pkgutil
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, requires
from typing import Annotated, Any

from orthosparse.lab import commands

# Exit codes, as shells know them.
DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130
_EXTRAS = ("lab", "timm", "ray", "onnx")  # for users; the others are for work on the package itself


def _required() -> list[str]:
    """Return what the package and its extras require; nothing in a source tree, which does not tell."""
    try:
        return requires("orthosparse") or []
    except PackageNotFoundError:
        return []


try:
    import typer
    from typer.core import TyperGroup
except ModuleNotFoundError as error:  # the library alone was installed, and with it the program
    wanted = [r.partition(";")[0].strip() for r in _required() if re.search("extra == .lab.", r)]
    remedy = f"; pip install {shlex.join(wanted)}" if wanted else f": {error}"
    print(f"error: the program needs more than the library{remedy}", file=sys.stderr)
    sys.exit(MISUSED)

_HELP = f"""Sparse training that starts exactly orthogonal.

\b
Examples:
  orthosparse demo
  orthosparse inspect timm:resnet50 --density 0.1
  orthosparse train --model resnet32 --data cifar10 --root data --density 0.1
  orthosparse COMMAND --help

\b
Exit codes:
  {DONE:3}  done
  {FAILED:3}  all or part of it failed; finished parts are kept
  {MISUSED:3}  wrong usage: an invalid option or name, or a file or data set that is missing
  {INTERRUPTED:3}  interrupted; the last line says how to continue

An error is one line on stderr. With --json, if a command has it, stdout holds only JSON. Colours and progress bars are
shown only on a terminal; set NO_COLOR to turn colours off.
"""
_Misuse: Any = typer.BadParameter.__base__  # typer's own error for what was asked wrongly; it has no public name


class _Commands(TyperGroup):
    """The commands that lie in ``lab/commands``, each imported when it is looked up."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        del ctx  # the folder is the list
        return sorted(found.name for found in pkgutil.iter_modules(commands.__path__) if found.name[0] != "_")

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command called `cmd_name`, or None."""
        if cmd_name not in self.list_commands(ctx):
            return None
        entry = getattr(importlib.import_module(f"{commands.__name__}.{cmd_name}"), cmd_name)
        if not isinstance(entry, typer.Typer):
            single = _app(add_completion=False)
            single.command(name=cmd_name)(entry)
            entry = single
        command = typer.main.get_command(entry)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is meant, or say which one may be."""
        try:
            return super().resolve_command(ctx, args)
        except _Misuse as error:
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            error.message += f" Did you mean {near[0]!r}?" if near else ""
            raise


def _app(**options: Any) -> typer.Typer:
    return typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, **options)


app = _app(cls=_Commands, no_args_is_help=True, help=_HELP)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        try:
            typer.echo(f"orthosparse {version('orthosparse')}")
        except PackageNotFoundError:  # a source tree
            typer.echo("orthosparse (not installed)")
        raise typer.Exit


@app.callback()
def _program(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may also follow the command.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del debug, version  # read by main, answered by the callback


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; an error is one line on stderr (with ``--debug``, the trace too)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [word for word in given if word != "--debug"]
    with _logging_to_stderr():
        try:
            result = typer.main.get_command(app).main(given, prog_name="orthosparse", standalone_mode=False)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - this is where every error ends
            if debug:
                traceback.print_exc()
            return _report(error, given, debug)
    if result == INTERRUPTED:  # how newer versions of typer hand an interrupt on
        return _report(KeyboardInterrupt(), given, debug)
    return result if isinstance(result, int) else DONE  # an int: typer.Exit's code


def _report(error: BaseException, given: Sequence[str], debug: bool) -> int:
    """Tell an error in one line, with the remedy, and return its exit code."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        typer.echo(f"interrupted{_way_on(given)}", err=True)
        return INTERRUPTED
    if hasattr(error, "format_message"):  # typer's own: a wrong option, an unknown command
        typer.echo(_misuse(error), err=True)
        return MISUSED
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ModuleNotFoundError) and (extra := _extra_with(error.name or "")):
        message += f"; pip install 'orthosparse[{extra}]'"
    if isinstance(error, ValueError | TypeError | FileNotFoundError | ImportError | FileExistsError):
        typer.echo(f"error: {message}", err=True)
        return MISUSED
    if isinstance(error, OSError) and error.filename is not None:  # a full disk, a folder one may not write to
        typer.echo(f"error: {error.filename}: {error.strerror}", err=True)
        return FAILED
    where = "" if debug else " (run again with --debug to see the traceback)"
    typer.echo(f"error: {type(error).__name__}: {message}{where}", err=True)
    return FAILED


def _extra_with(module: str) -> str | None:
    """Return the extra that installs a module; None for what a user's own file imports, or a logger of their choice."""
    name = module.partition(".")[0]
    package = {"PIL": "pillow", "sklearn": "scikit-learn"}.get(name, name.replace("_", "-"))
    line = rf"{re.escape(package)}[<=>!~][^;]*; extra == .({'|'.join(_EXTRAS)})."
    wanted = [re.fullmatch(line, requirement) for requirement in _required()]
    return next((found[1] for found in wanted if found), None)


def _misuse(error: Any) -> str:
    """Return what is wrong and whose help to read; a command without arguments answers with its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message())
    message = " ".join(error.format_message().split()).rstrip(".")
    for invalid in getattr(error.__cause__, "errors", list)():  # newer versions of typer leave out what was given
        message += f"; got {invalid['input']!r}"
    asked = getattr(getattr(error, "ctx", None), "command_path", "orthosparse")
    return f"error: {message}{'' if message.endswith('?') else '.'} Try: {asked} --help"


def _way_on(given: Sequence[str]) -> str:
    """Return the command that goes on where this one was interrupted, if it is one that can."""
    name = next((word for word in given if not word.startswith("-")), "")
    more = getattr(sys.modules.get(f"{commands.__name__}.{name}"), "RESUMES_WITH", None)
    if more is None:
        return ""
    return f"; continue with: {shlex.join(['orthosparse', *given, *(word for word in more if word not in given)])}"


@contextlib.contextmanager
def _logging_to_stderr() -> Iterator[None]:
    """Show what the library logs from warnings on, while a command runs."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger = logging.getLogger("orthosparse")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
