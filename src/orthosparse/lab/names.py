"""What a name means that a user gives: a member of a table, or a function in a file of their own.

Names in tables are read from their source: reading a name must not import torch.
"""

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

from orthosparse.registry import did_you_mean, lookup

# Where the names of an option stand: a file of the package, and a table or tuple that is written out in it.
TABLES = {
    "activation": ("lab/models/_parts.py", "ACTIVATIONS"),
    "check": ("lab/bench/sampler.py", "CHECKS"),
    "compact_check": ("lab/bench/compact.py", "CHECKS"),
    "data": ("lab/data/__init__.py", "DATA"),
    "dense_init": ("lab/models/__init__.py", "DENSE_INITS"),
    "distribution": ("distributions/__init__.py", "DISTRIBUTIONS"),
    "dynamic": ("lab/training/run.py", "DYNAMICS"),
    "engine": ("lab/sweep/engines/__init__.py", "ENGINES"),
    "floor": ("counts.py", "FLOORS"),
    "format": ("lab/paper/report.py", "FORMATS"),
    "item": ("lab/paper/__init__.py", "ITEMS"),
    "log": ("lab/training/callbacks.py", "LOGS"),
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
        lookup(_table(option), name, option)


def _table(option: str) -> Any:
    path, table = TABLES[option]
    module = f"orthosparse.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"
    return getattr(import_module(module), table)


def check_model(name: str) -> None:
    """Check that a name means a network.

    Raises:
        ValueError: it does not.
    """
    if not (isinstance(name, str) and name.startswith("timm:")):
        _check_own("model", name, ", timm:NAME or path/to/file.py:function")


def check_data(name: str) -> None:
    """Check that a name means a data set.

    Raises:
        ValueError: it does not.
    """
    _check_own("data", name, " or path/to/file.py:function")


def _check_own(option: str, name: str, others: str) -> None:
    """Check that a name is in a table, or means a function of the user's own."""
    own = isinstance(name, str) and is_function(name)
    if not own and name not in names_of(option) and name not in _table(option):
        known = sorted(names_of(option))
        meant = did_you_mean(name, known)
        raise ValueError(f"{option}: expected one of {', '.join(known)}{others}; got {name!r}{meant}")


def is_function(name: str) -> bool:
    """Whether a name means a function in a file.

    Example:
        >>> is_function("nets/small.py:build"), is_function("resnet32")
        (True, False)
    """
    return ".py:" in name


def load_function(name: str, argument: str) -> Callable[..., Any]:
    """Return the function called ``path/to/file.py:function``.

    The file may import what lies beside it: its folder comes first on ``sys.path``, as when Python runs the file. In a
    package (a folder with ``__init__.py``) it is imported as a module of that, so that relative imports work.

    Args:
        argument: what the function was given for, for messages.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file has no such function.
    """
    written, _, function = name.rpartition(":")
    path = Path(written).expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(f"{argument}: expected a file at {written}; there is none")
    module = _imported(path)
    found = getattr(module, function, None)
    if not callable(found):
        functions = sorted(key for key, value in vars(module).items() if inspect.isroutine(value))
        raise ValueError(
            f"{argument}: expected a function of {written} ({', '.join(functions) or 'none'}); got {function!r}"
        )
    return found  # type: ignore[no-any-return]


def taken(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    """Return the options that a function takes and that are not None.

    Example:
        >>> taken(lambda classes: None, classes=3, in_shape=(1, 2, 2))
        {'classes': 3}
    """
    parameters = inspect.signature(function).parameters
    everything = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return {key: value for key, value in options.items() if value is not None and (everything or key in parameters)}


def _imported(path: Path) -> ModuleType:
    folder, name = path.parent, path.stem
    while (folder / "__init__.py").is_file():
        folder, name = folder.parent, f"{folder.name}.{name}"
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if folder != path.parent:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(f"orthosparse_file_{path.stem}", path)
    assert spec is not None, "a path that ends in .py has a loader"
    assert spec.loader is not None, "and it is a source loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in the file look themselves up
    spec.loader.exec_module(module)
    return module
