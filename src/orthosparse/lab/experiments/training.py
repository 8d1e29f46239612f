"""Training: one network from one start to its test accuracy, with the curves of its epochs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from orthosparse.lab.experiments._experiment import Experiment, Progress
from orthosparse.lab.training.recipe import RECIPES, Recipe
from orthosparse.lab.training.run import (
    Run,
    changed_fields,
    plain_fields,
    recipe_for,
    stack_key,
    why_not_stacked,
    words_of,
)

COSTS_OF = "NVIDIA H200"  # the device of the costs below
# Seconds of one step of 128 images, and training images: rough, for the estimate alone.
_STEP = {"mlp": 0.001, "mlp1000": 0.03, "cnn1000": 0.2, "resnet32": 0.004, "resnet56": 0.007, "resnet110": 0.013}
_STEP |= {"vgg16c": 0.003, "efficientnet_b0": 0.007, "resnet50": 0.05, "deit3_small": 0.05}
# The share that a network has of a step of a stack: little where our kernels compute all networks at once. Convolutions
# of VGG-16 come one network after the other.
_STACKED_STEP = {"mlp": 0.0001, "mlp1000": 0.0003, "cnn1000": 0.02, "vgg16c": 0.0032}
_STACKED_STEP |= {"resnet32": 0.0005, "resnet56": 0.0008, "resnet110": 0.0016}
_IMAGES = {"digits": 1_294, "mnist": 54_000, "fashion_mnist": 54_000, "cifar10": 45_000, "cifar100": 45_000}
_IMAGES |= {"cifar10_64": 45_000, "tiny_imagenet": 100_000, "imagenet": 1_281_167}
_SETUP, _AI, _STACKED_SETUP = 10.0, 60.0, 2.0
_UNREAD_WHEN_DENSE = {"distribution", "scheme", "options", "exclude", "floor", "score_batches"}
_IN_RECIPE = [field.name for field in fields(Recipe)]


@dataclass(frozen=True, eq=False, init=False)
class Training(Experiment, Run):
    """A run as an experiment: its key names what differs from the defaults, and from the paper's recipe of its model.

    Args:
        recipe: a recipe, or the model whose recipe is taken; None is the model's own.
        given: further fields of the run, and fields of the recipe that replace its values; None leaves the recipe's.
    """

    kind: ClassVar[str] = "training"
    accelerated: ClassVar[bool] = True

    def __init__(
        self,
        model: str,
        data: str,
        density: float = 1.0,
        distribution: str = "erk",
        scheme: str = "eoi",
        *,
        recipe: Recipe | str | None = None,
        **given: Any,
    ) -> None:
        if not isinstance(recipe, Recipe):
            recipe = recipe_for(model) if recipe is None else recipe_for(recipe, "recipe")
        changes = {name: given.pop(name) for name in _IN_RECIPE if name in given}
        recipe = replace(recipe, **{name: value for name, value in changes.items() if value is not None})
        start: dict[str, Any] = {"density": density, "distribution": distribution, "scheme": scheme}
        Run.__init__(self, model, data, recipe, **start, **given)

    @classmethod
    def names(cls) -> set[str]:
        """Return the fields of a run and of its recipe."""
        return {field.name for field in fields(cls)} | set(_IN_RECIPE)

    def unread(self) -> set[str]:
        """Return the fields of the sparse start, for a dense network."""
        return _UNREAD_WHEN_DENSE if self.density == 1 else set()

    def given(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, and those of the recipe that differ from the model's."""
        base = self._base()
        own = {name: value for name, value in changed_fields(self, self.unread()).items() if name != "recipe"}
        named = {} if base is None else {"recipe": base}
        return own | named | _changes(self.recipe, RECIPES[base or self.model])

    def described(self) -> dict[str, Any]:
        """Return every field, and those of the recipe beside them."""
        return plain_fields(self) | {"recipe": self._base()} | plain_fields(self.recipe)

    def label(self) -> str:
        """Return the given fields in a few words, the start among them."""
        start = {} if self.density == 1 else {"distribution": self.distribution, "scheme": self.scheme}
        given = self.given() | start
        order = ["model", "data", "density", "distribution", "scheme"]
        order += [name for name in given if name not in order]
        return " ".join([self.kind, *words_of({name: given[name] for name in order if name in given})])

    def cost(self) -> float:
        """Return a rough number of seconds on a fast GPU."""
        start = _AI if self.scheme == "ai" and self.density < 1 else 0.0
        return _SETUP + start + self._steps() * _STEP.get(self.model, 0.05)

    def stacked_cost(self) -> float:
        """Return the same of a run in a stack, whose starts are made side by side."""
        step = _STACKED_STEP.get(self.model)
        return self.cost() if step is None else _STACKED_SETUP + self._steps() * step

    def _steps(self) -> float:
        """Return the steps of a training, each as long as one of 128 samples; a shorter one takes as long."""
        steps = self.recipe.epochs * math.ceil(_IMAGES.get(self.data, 50_000) / self.recipe.batch)
        return steps * max(1.0, self.recipe.batch / 128)

    def run(
        self,
        seed: int,
        *,
        root: Path | str | None = None,
        out: Path | None = None,
        device: str = "auto",
        progress: Progress | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Train, going on from a checkpoint in `out` if there is one, and test after the last epoch.

        Args:
            options: further arguments of `train`.
        """
        from orthosparse.lab.training.rows import train

        own: dict[str, Any] = {"resume": out is not None, "logs": (), **options}
        return train(self, seed, root=root, out=out, device=device, progress=progress, **own)

    def _base(self) -> str | None:
        """Return the model whose recipe differs least, for a model that has none of its own."""
        if self.model in RECIPES:
            return None
        return min(sorted(RECIPES), key=lambda name: len(_changes(self.recipe, RECIPES[name])))


def group_of(experiment: Experiment) -> str | None:
    """Return what trainings that can run together have in common; None for what runs by itself.

    Example:
        >>> sparse, dense = Training("resnet32", "cifar10", 0.1), Training("resnet32", "cifar10")
        >>> group_of(sparse) == group_of(dense), group_of(Training("efficientnet_b0", "cifar10"))
        (True, None)
    """
    if not isinstance(experiment, Training):
        return None
    return stack_key(experiment) if why_not_stacked(experiment) is None else None


def run_together(trainings: Sequence[tuple[Training, int]], **options: Any) -> list[dict[str, Any] | Exception]:
    """Return, for each training and its seed, the metrics as `Training.run` gives them, or why it has no start.

    The metric ``together`` says with how many a training shared its time.

    Args:
        options: as of `Training.run`; `out` is one folder for all of them.
    """
    from orthosparse.lab.training.rows import train_many

    return train_many(trainings, **{"resume": options.get("out") is not None, **options})


def _changes(recipe: Recipe, base: Recipe) -> dict[str, Any]:
    """Return the values of a recipe that another one has otherwise."""
    own, other = plain_fields(recipe), plain_fields(base)
    return {name: value for name, value in own.items() if value != other[name]}
