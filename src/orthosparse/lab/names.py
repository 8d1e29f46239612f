"""The names in the tables of the program, read from their source: reading a name must not import torch."""

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.resources import files

from orthosparse.registry import lookup

# Where the names of an option stand: a file of the package, and a table or tuple that is written out in it.
TABLES = {
    "activation": ("lab/models/_activations.py", "ACTIVATIONS"),
    "check": ("lab/bench/sampler.py", "CHECKS"),
    "compact_check": ("lab/bench/compact.py", "CHECKS"),
    "data": ("lab/data/__init__.py", "DATA"),
    "dense_init": ("lab/models/dense.py", "DENSE_INITS"),
    "distribution": ("distributions/__init__.py", "DISTRIBUTIONS"),
    "dynamic": ("lab/training/run.py", "DYNAMICS"),
    "engine": ("lab/sweep/engines/__init__.py", "ENGINES"),
    "floor": ("counts.py", "FLOORS"),
    "format": ("lab/paper/report.py", "FORMATS"),
    "item": ("lab/paper/__init__.py", "ITEMS"),
    "log": ("lab/training/logs.py", "LOGS"),
    "loss": ("lab/training/recipe.py", "LOSSES"),
    "mode": ("lab/inspection/starts.py", "MODES"),
    "model": ("lab/models/__init__.py", "MODELS"),
    "optimizer": ("lab/training/recipe.py", "OPTIMIZERS"),
    "precision": ("lab/training/recipe.py", "PRECISIONS"),
    "recipe": ("lab/training/recipe.py", "RECIPES"),
    "schedule": ("lab/training/recipe.py", "SCHEDULES"),
    "scheme": ("schemes/__init__.py", "SCHEMES"),
    "strategy": ("lab/training/devices.py", "STRATEGIES"),
}


@cache
def names_of(option: str) -> tuple[str, ...]:
    """Return the names in the table of an option, in its order.

    Example:
        >>> names_of("engine")
        ('local', 'ray')
    """
    path, table = TABLES[option]
    for node in ast.parse(files("orthosparse").joinpath(path).read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == table for target in targets):
            value = getattr(node, "value", None)
            value = value.args[0] if isinstance(value, ast.Call) else value  # LazyTable({...})
            found = value.keys if isinstance(value, ast.Dict) else getattr(value, "elts", [])
            return tuple(key.value for key in found if isinstance(key, ast.Constant) and isinstance(key.value, str))
    raise LookupError(f"{path} has no table {table}")  # our own mistake


def check_name(option: str, name: str) -> None:
    """Check that a table has a name; the table is imported only where its source does not list the name.

    Raises:
        ValueError: it does not.

    Example:
        >>> check_name("scheme", "eoi")
    """
    if name not in names_of(option):
        path, table = TABLES[option]
        module = f"orthosparse.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"
        lookup(getattr(import_module(module), table), name, option)


def completing(option: str) -> Callable[[], list[str]]:
    """Return what typer asks for the values of an option; it leaves out those that do not begin as typed."""

    def complete() -> list[str]:
        return list(names_of(option))

    return complete
