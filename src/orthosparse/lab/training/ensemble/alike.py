"""Which runs can train together: those whose networks have one shape, one data set and one recipe."""

import json
from typing import Any

from orthosparse.lab.training.run import Run

# Plain chains of layers and residual networks, which can be stacked.
MODELS = ("cnn1000", "mlp", "mlp1000", "resnet32", "resnet56", "resnet110")
_OWN = {"density", "distribution", "scheme", "floor", "exclude", "options", "score_batches"}
_OWN |= {"dynamic", "every", "fraction", "until"}
_OWN_IN_RECIPE = {"dense_init", "gain", "bias_std"}


def why_not(config: Run) -> str | None:
    """Return why runs like this one do not train together, or None where they do.

    Example:
        >>> from orthosparse.lab.training import recipe_for
        >>> why_not(Run("mlp1000", "mnist", recipe_for("mlp1000"))) is None
        True
        >>> why_not(Run("vgg16c", "cifar10", recipe_for("vgg16c")))
        'model: expected one of cnn1000, mlp, mlp1000, resnet32, resnet56, resnet110; got vgg16c'
    """
    recipe = config.recipe
    if config.model not in MODELS:
        return f"model: expected one of {', '.join(MODELS)}; got {config.model}"
    wanted: dict[str, Any] = {"optimizer": "sgd", "loss": "cross_entropy", "mixup": 0, "cutmix": 0, "clip": 0}
    for name, value in (wanted | {"accumulate": 1}).items():
        if getattr(recipe, name) != value:
            return f"{name}: expected {value} for networks that train together; got {getattr(recipe, name)}"
    return None


def shape_of(config: Run) -> str:
    """Return what runs must have in common to train together; starts, densities and masks, moving or not, are no part.

    Raises:
        ValueError: runs like this one cannot.
    """
    if (reason := why_not(config)) is not None:
        raise ValueError(reason)
    settings = config.settings()
    recipe = {name: value for name, value in settings.pop("recipe").items() if name not in _OWN_IN_RECIPE}
    shared = {name: value for name, value in settings.items() if name not in _OWN}
    return json.dumps({**shared, "recipe": recipe}, sort_keys=True)


def check_alike(configs: list[Run]) -> None:
    """Raise a ValueError that names what sets apart runs which are to train together."""
    if not configs:
        raise ValueError("members: expected at least one; got none")
    first, *others = [json.loads(shape_of(config)) for config in configs]
    for number, other in enumerate(others, start=1):
        names = [name for name in first if first[name] != other[name]]
        if names:
            raise ValueError(
                f"members: expected one shape, data set and recipe; member {number} differs in {', '.join(names)}"
            )
