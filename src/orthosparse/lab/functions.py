"""Functions in the user's own files, named ``path/to/file.py:function``."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


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
