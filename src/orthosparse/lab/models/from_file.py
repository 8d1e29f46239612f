"""Networks of the user's own: what a function in a file returns."""

from torch import nn

from orthosparse.lab.names import load_function, taken


def from_file(name: str, **options: object) -> nn.Module:
    """Return what the function ``path/to/file.py:function`` makes.

    Args:
        options: the function is given those that it takes: ``classes``, ``in_shape``, ``activation``, and its own.

    Raises:
        FileNotFoundError: no such file.
        TypeError: the function does not return a module.
        ValueError: no such function, or an option (but for ``classes`` and ``in_shape``) that it does not take.
    """
    make = load_function(name, "model")
    given = taken(make, **options)
    known = {"classes", "in_shape"}  # what every network is given
    if refused := [each for each in options if options[each] is not None and each not in given and each not in known]:
        raise ValueError(f"{refused[0]}: expected none, as {name} takes no such argument; got {options[refused[0]]!r}")
    model = make(**given)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected {name} to return a torch.nn.Module; got {type(model).__name__}")
    return model
