"""Options that several commands share, those made from the fields of a run among them, and how they print results."""

import inspect
import json as _json
import os
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, Field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from orthosparse.lab.names import names_of

ROOT = Path("data")  # from which every command reads data, and where it puts it
_LONGEST = 200  # bytes of a folder's name; file systems have 255


def matching(option: str) -> Callable[[Any], Any]:
    """Return a callback that spells the values of an option as its table does, whatever their case.

    Example:
        >>> matching("scheme")("EOI"), matching("model")("timm:ViT"), matching("item")(["RANKS"])
        ('eoi', 'timm:ViT', ['ranks'])
    """

    def match(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [match(each) for each in value]
        known = {name.lower(): name for name in names_of(option)}
        return known.get(value.lower(), value) if isinstance(value, str) else value

    return match


def choice(option: str, help: str, *names: str) -> Any:  # noqa: A002 - typer's own name for it
    """Return an option whose values are the names of a table, in any case.

    Args:
        option: the table, see `lab.names`.
        help: what the option is for; the names are added where it does not have them all.
        names: of the option itself, where it is not called like its parameter.
    """
    return typer.Option(*names, help=listing(option, help), **by_name(option))


def by_name(option: str) -> dict[str, Any]:
    """Return the arguments of typer's for values that are the names of a table, in any case."""
    return {"autocompletion": lambda: list(names_of(option)), "callback": matching(option)}


def listing(option: str, help: str) -> str:  # noqa: A002 - as above
    """Return a help with the names of a table, added where it does not have them all.

    Example:
        >>> listing("engine", "Where pairs run."), listing("engine", "local or ray.")
        ('Where pairs run. Any of local, ray.', 'local or ray.')
    """
    names = names_of(option)
    return help if all(name in help for name in names) else f"{help} Any of {', '.join(names)}."


Distribution = Annotated[str, choice("distribution", "How many weights each layer keeps.")]
Scheme = Annotated[str, choice("scheme", "Which weights these are, and their values.")]
Options = Annotated[
    list[str] | None, typer.Option(help="Option NAME=VALUE of the distribution or the scheme; may be repeated.")
]
Exclude = Annotated[list[str] | None, typer.Option(help="Layer (name or glob) that stays dense; may be repeated.")]
Floor = Annotated[str, choice("floor", "What to do with layers that get too few weights to be orthogonal.")]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.")]
Root = Annotated[Path, typer.Option(help="Folder that holds the data.")]
Device = Annotated[
    str,
    typer.Option(help="Device to use: auto, cpu, cuda or cuda:INDEX.", autocompletion=lambda: ["auto", "cpu", "cuda"]),
]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON to stdout.")]


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


def whole_numbers(text: str) -> list[int]:
    """Return the numbers of a list like ``1,2,3``, each once.

    Raises:
        ValueError: it is not one.

    Example:
        >>> whole_numbers("3,1,3")
        [3, 1]
    """
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise ValueError(f"seeds: expected whole numbers with commas between them, such as 1,2,3; got {text!r}")
    return list(dict.fromkeys(map(int, parts)))


def check_at_least(least: int, **options: int | None) -> None:
    """Check whole numbers by the names of their options; None is what was not given.

    Raises:
        ValueError: one is below `least`.
    """
    for name, value in options.items():
        if value is not None and value < least:
            raise ValueError(f"{name}: expected {least} or more; got {value}")


def check_folder(folder: Path, option: str = "out") -> None:
    """Check that the folder of an option can be there, before the work begins whose results go into it.

    Raises:
        ValueError: a file is there, or where a folder of its path would be.
    """
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise ValueError(f"{option}: expected a folder; {path} is a file")


def check_results(folder: Path) -> None:
    """Check that --out can be a folder of results, before the work begins.

    Raises:
        ValueError: a file is there, or it may not be created or written to.
    """
    check_folder(folder)
    found = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not os.access(found, os.W_OK | os.X_OK):
        raise ValueError(f"out: expected a folder to write to; there is no permission to write in {found}")


def folder_name(text: str) -> str:
    """Return a text as the name of a folder: one too long for file systems is cut, and ends with a digest of all of it.

    Example:
        >>> folder_name("mlp-digits-dense-seed1"), len(folder_name("a" * 1000))
        ('mlp-digits-dense-seed1', 200)
    """
    encoded = text.encode(errors="surrogateescape")
    if len(encoded) <= _LONGEST:
        return text
    digest = blake2b(encoded, digest_size=8).hexdigest()
    # A letter that the cut divides is left out.
    return f"{encoded[: _LONGEST - len(digest) - 1].decode(errors='ignore')}-{digest}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    Example:
        >>> counted(1, "row"), counted(0, "pair")
        ('1 row', '0 pairs')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def command_line(context: typer.Context, *, without: Collection[str] = ()) -> str:
    """Return the command that does the same again: what was given, and the seed.

    Args:
        without: parameters that do not change what comes out.
    """
    words = [context.command_path]
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in without or source is None or (source.name == "DEFAULT" and name != "seed"):
            continue
        value = context.params[name]
        option = [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
        if isinstance(value, bool):
            words += option if value else parameter.secondary_opts[:1]
        else:
            for each in value if isinstance(value, list | tuple) else [value]:
                words += [*option, str(each)]
    return f"{words[0]} {shlex.join(words[1:])}".strip()


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    typer.echo(_json.dumps(value))


Command = Callable[..., None]
_RECIPE = "Model whose recipe is used; by default that of --model."


# A field's name, type, default and help are written once, where the field is.
def with_fields(*, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command an option for each field of `Run` and of `Recipe`, instead of its ``**given``.

    The fields of the recipe have no defaults: what is not given is the recipe's. `given_of` reads what was given.

    Args:
        without: fields that the command does not take.
    """
    from orthosparse.lab.training.recipe import Recipe
    from orthosparse.lab.training.run import Run

    made = [*_options(Run, optional=False), *_options(Recipe, optional=True)]

    def add(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters.values()
        kept = [each.replace(kind=each.KEYWORD_ONLY) for each in own if each.kind is not each.VAR_KEYWORD]
        left = {*without, *(each.name for each in kept)}
        both = [*(each for each in made if each.name not in left), *kept]
        command.__signature__ = inspect.Signature(both)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in both}
        return command

    return add


def given_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that were given, as `Training` takes them."""
    from orthosparse.lab.training.run import Run

    lists = {field.name: get_origin(field.type) for field in fields(Run)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if lists.get(name) is dict:
            values[name] = dict(named_value(text) for text in value or ())
        else:
            values[name] = tuple(value or ()) if lists.get(name) is tuple else value
    return values


def check_effects(given: dict[str, Any], recipe: Any) -> None:
    """Raise a ValueError if a field of the recipe was given that another one leaves without effect."""
    for field in fields(recipe):
        option, _, needed = field.metadata.get("needs", "").partition("=")
        if not option or given.get(field.name) is None:
            continue
        got = getattr(recipe, option)
        has_effect = got == needed if needed else bool(got)
        if not has_effect:
            raise ValueError(f"{field.name}: expected --{f'{option} {needed}'.strip()} with it; got {got}")


def _options(description: Any, *, optional: bool) -> Iterator[inspect.Parameter]:
    for field in fields(description):
        kind, default = _option(field, optional=optional)
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _option(field: Field[Any], *, optional: bool) -> tuple[Any, Any]:
    """Return the type of a field's option, and its default."""
    if field.name == "recipe":
        return Annotated[str | None, choice("recipe", _RECIPE)], None
    about: Any = field.metadata
    names = [f"--{about['option']}"] if "option" in about else []
    option = choice(about["names"], about["help"]) if "names" in about else typer.Option(*names, help=about["help"])
    kind: Any = field.type
    if get_origin(kind) in (dict, tuple):
        return Annotated[list[str] | None, option], None
    if optional:
        return Annotated[kind | None, option], None
    return Annotated[kind, option], inspect.Parameter.empty if field.default is MISSING else field.default
