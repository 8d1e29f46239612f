"""Options made from the fields of a description: a field's name, type, default and help are written once, there."""

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, get_origin

import typer

from orthosparse.lab.commands._options import choice, named_value

Command = Callable[..., None]
_RECIPE = "The model whose recipe is taken; by default the model's own."


def with_fields(*, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command an option for each field of `Run` and of `Recipe`, in the place of its ``**given``.

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


def _options(description: Any, *, optional: bool) -> Iterator[inspect.Parameter]:
    for field in fields(description):
        if field.name == "recipe":
            yield _parameter("recipe", Annotated[str | None, choice("recipe", _RECIPE)], None)
        else:
            yield _option(field, optional=optional)


def _option(field: Field[Any], *, optional: bool) -> inspect.Parameter:
    about = field.metadata
    names = [f"--{about['option']}"] if "option" in about else []
    option = choice(about["names"], about["help"]) if "names" in about else typer.Option(*names, help=about["help"])
    kind = field.type
    if get_origin(kind) in (dict, tuple):
        return _parameter(field.name, Annotated[list[str] | None, option], None)
    if optional:
        return _parameter(field.name, Annotated[kind | None, option], None)  # type: ignore[operator]
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return _parameter(field.name, Annotated[kind, option], default)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
