"""Which modules a user means by names, globs, types and callables."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn

from orthosparse.registry import did_you_mean

Selector = str | type[nn.Module] | Callable[[str, nn.Module], bool]


class Selection:
    """Selectors, checked once against a model, then asked about tensor after tensor.

    A selector stands for the modules it matches and everything below them; a string may also name a tensor.

    Raises:
        TypeError: something that is not a selector.
        ValueError: a string that matches nothing in the model.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
        >>> Selection(model, "1", "exclude").matches("1.0", "weight")
        True
    """

    def __init__(self, model: nn.Module, selectors: Sequence[Selector] | Selector, argument: str) -> None:
        single = isinstance(selectors, str | type) or _is_function(selectors)
        if not (single or (isinstance(selectors, Iterable) and not isinstance(selectors, nn.Module | Tensor | bytes))):
            raise TypeError(f"{argument}: expected one selector or a sequence of them; got {selectors!r}")
        self.selectors: list[Selector] = [selectors] if single else list(selectors)  # type: ignore[list-item, arg-type]
        self.modules = dict(model.named_modules())
        tensors = [name for name, _ in model.named_parameters(remove_duplicate=False)]
        for selector in self.selectors:
            if isinstance(selector, str):
                if not any(matches_pattern(selector, name) for name in (*self.modules, *tensors)):
                    meant = did_you_mean(selector, [*self.modules, *tensors])
                    none = f"{selector!r} matches none of this model{meant}"
                    raise ValueError(f"{argument}: expected names of modules; {none}")
            elif not (isinstance(selector, type) or _is_function(selector)):
                raise TypeError(f"{argument}: expected a name, a glob, a module type or a callable; got {selector!r}")

    def matches(self, module_name: str, tensor: str) -> bool:
        """Whether a selector takes this tensor, its module, or a module around it."""
        names = module_name.split(".")
        around = [".".join(names[:i]) for i in range(len(names), 0, -1)]
        return any(self._takes(selector, around, f"{module_name}.{tensor}".lstrip(".")) for selector in self.selectors)

    def names(self, module_name: str, tensor: str) -> bool:
        """Whether a string, and no glob, is the name of this tensor, its module, or a module around it."""
        return any(
            isinstance(name, str) and f"{module_name}.{tensor}.".lstrip(".").startswith(f"{name}.")
            for name in self.selectors
        )

    def _takes(self, selector: Selector, around: list[str], tensor: str) -> bool:
        if isinstance(selector, str):
            return any(matches_pattern(selector, name) for name in (*around, tensor))
        if isinstance(selector, type):
            return any(isinstance(self.modules[name], selector) for name in around)
        return any(selector(name, self.modules[name]) for name in around)


def _is_function(selector: object) -> bool:
    """Whether it can be asked about a module; a module itself, which is callable too, names nothing."""
    return callable(selector) and not isinstance(selector, nn.Module)


def matches_pattern(pattern: str, name: str) -> bool:
    """Whether `name` is `pattern`, or matches it as a glob (``*`` also runs over dots).

    Example:
        >>> matches_pattern("*.attn.qkv", "blocks.0.attn.qkv"), matches_pattern("head", "heads")
        (True, False)
    """
    return bool(name) and (name == pattern or fnmatchcase(name, pattern))
