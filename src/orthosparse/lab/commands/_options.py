"""Options that several commands read the same way, and what they print for machines."""

import json as _json
from pathlib import Path
from typing import Annotated, Any

import typer

from orthosparse.lab.names import completing

Distribution = Annotated[
    str, typer.Option(help="How many weights each layer keeps.", autocompletion=completing("distribution"))
]
Scheme = Annotated[str, typer.Option(help="Which weights, and with what values.", autocompletion=completing("scheme"))]
Options = Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the distribution or the scheme.")]
Exclude = Annotated[list[str] | None, typer.Option(help="A layer (name or glob) that stays dense.")]
Floor = Annotated[
    str,
    typer.Option(help="Layers below their floor: raise, partial or error.", autocompletion=completing("floor")),
]
Seed = Annotated[int, typer.Option(help="Everything that is drawn follows from it.")]
Root = Annotated[Path, typer.Option(help="The folder that holds the data.")]
Device = Annotated[
    str,
    typer.Option(help="auto, cpu, cuda or cuda:INDEX.", autocompletion=lambda: ["auto", "cpu", "cuda"]),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.")]


def group(help: str, *examples: str) -> typer.Typer:  # noqa: A002 - typer's own name for it
    """Return a command that has commands of its own."""
    shown = "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples)])
    options: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": None, "no_args_is_help": True}
    return typer.Typer(add_completion=False, help=f"{help}\n\n{shown}", **options)


def named_value(text: str) -> tuple[str, Any]:
    """Return the name and the value of ``NAME=VALUE``; the value is JSON where it can be, else text.

    Example:
        >>> named_value("iterations=100"), named_value("tap=random")
        (('iterations', 100), ('tap', 'random'))
    """
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"option: expected NAME=VALUE; got {text!r}")
    try:
        return name, _json.loads(value)
    except _json.JSONDecodeError:
        return name, value


def whole_numbers(text: str, name: str = "seeds") -> list[int]:
    """Return the numbers of a list like ``1,2,3``, each once.

    Raises:
        ValueError: it is not one.

    Example:
        >>> whole_numbers("3,1,3")
        [3, 1]
    """
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise ValueError(f"{name}: expected whole numbers with commas between them, such as 1,2,3; got {text!r}")
    return list(dict.fromkeys(map(int, parts)))


def check_at_least(least: int, **options: int | None) -> None:
    """Check whole numbers by the names of their options; None is what was not given.

    Raises:
        ValueError: one is below `least`.
    """
    for name, value in options.items():
        if value is not None and value < least:
            raise ValueError(f"{name}: expected {least} or more; got {value}")


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    typer.echo(_json.dumps(value))
