"""The `orthosparse` program: finds its commands, and turns errors into one line and an exit code.

A command is a file in ``lab/commands``: ``NAME.py`` with a function ``NAME`` (or a ``typer.Typer`` called ``NAME`` when
it has commands of its own). It is imported only when it is asked for.
"""

import contextlib
import importlib
import logging
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from orthosparse.lab import commands

# Exit codes, as shells know them: 1 it went wrong, 2 it was asked wrongly, 130 interrupted.
_FAILED, _MISUSED, _INTERRUPTED = 1, 2, 130


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
            single = _app()
            single.command(name=cmd_name)(entry)
            entry = single
        command = typer.main.get_command(entry)
        command.name = cmd_name
        return command


def _app(**options: Any) -> typer.Typer:
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, **options)


app = _app(cls=_Commands, no_args_is_help=True, help="Sparse training that starts exactly orthogonal.")


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"orthosparse {version('orthosparse')}")
        raise typer.Exit


@app.callback()
def _program(
    debug: Annotated[bool, typer.Option("--debug", help="On an error, show where it came from.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    del debug, version  # read by main, answered by the callback


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; an error is one line on stderr (with ``--debug``, the trace too)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    with _logging_to_stderr():
        try:
            result = typer.main.get_command(app).main(
                [a for a in given if a != "--debug"], prog_name="orthosparse", standalone_mode=False
            )
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - this is where every error ends
            if debug:
                traceback.print_exc()
            return _report(error, debug)
    if result == _INTERRUPTED:  # how newer versions of typer hand an interrupt on
        return _report(KeyboardInterrupt(), debug)
    return result if isinstance(result, int) else 0  # an int: typer.Exit's code


def _report(error: BaseException, debug: bool) -> int:
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        typer.echo("interrupted", err=True)
        return _INTERRUPTED
    if hasattr(error, "format_message"):  # typer's own: a wrong option, an unknown command
        typer.echo(f"error: {error.format_message()}. Try: orthosparse --help".replace("..", "."), err=True)
        return _MISUSED
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ValueError | TypeError | FileNotFoundError | ImportError | FileExistsError):
        typer.echo(f"error: {message}", err=True)
        return _MISUSED
    where = "" if debug else " (run again with --debug to see where it came from)"
    typer.echo(f"error: {type(error).__name__}: {message}{where}", err=True)
    return _FAILED


@contextlib.contextmanager
def _logging_to_stderr() -> Any:
    """Show what the library logs from warnings on, while a command runs."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger = logging.getLogger("orthosparse")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


if __name__ == "__main__":
    sys.exit(main())
