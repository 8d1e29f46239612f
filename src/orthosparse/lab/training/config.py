"""What is trained on what, from which start: the settings of a run, as plain values."""

from dataclasses import asdict, dataclass, field
from typing import Any

from orthosparse import DISTRIBUTIONS, SCHEMES
from orthosparse.lab.data import DATA
from orthosparse.lab.models import ACTIVATIONS, DENSE_INITS, MODELS
from orthosparse.lab.training.recipe import RECIPES, Recipe
from orthosparse.registry import lookup

# Masks that move: what the Rewirer is given. RigL rests after three quarters (Evci et al. 2020), SET never does.
DYNAMICS: dict[str, dict[str, Any]] = {
    "rigl": {"grow": "gradient", "until": 0.75},
    "set": {"grow": "random", "until": 1.0},
}


@dataclass(frozen=True)
class TrainConfig:
    """A network, its data, its recipe and its masks.

    Attributes:
        density: 1 trains the dense network from its dense start; distribution and scheme are not read then.
        options: further arguments of `orthosparse.sparsify`, for the distribution or the scheme.
        exclude: layers that stay dense.
        score_batches: how many training batches a distribution that looks at data is given.
        dynamic: None, ``set`` or ``rigl``; `every`, `fraction` and `until` are the Rewirer's (None: the method's own).
        validation: hold out a tenth of the training samples.
        eval_batch: samples at a time when evaluating; it changes no result.
    """

    model: str
    data: str
    recipe: Recipe
    activation: str | None = None
    model_options: dict[str, Any] = field(default_factory=dict)
    density: float = 1.0
    distribution: str = "erk"
    scheme: str = "eoi"
    floor: str = "raise"
    exclude: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    score_batches: int = 1
    dynamic: str | None = None
    every: int = 800
    fraction: float = 0.5
    until: float | None = None
    validation: bool = True
    eval_batch: int = 500

    def __post_init__(self) -> None:
        """Check names and numbers before anything is read or built.

        Raises:
            ValueError: an unknown name (the known ones are listed), a number outside its range, or masks that
                move on a dense network.
        """
        if not self.model.startswith("timm:") and self.model not in MODELS:
            raise ValueError(f"model: expected one of {', '.join(sorted(MODELS))} or timm:NAME; got {self.model!r}")
        lookup(DATA, self.data, "data")
        lookup(DISTRIBUTIONS, self.distribution, "distribution")
        lookup(SCHEMES, self.scheme, "scheme")
        lookup(DENSE_INITS, self.recipe.dense_init, "dense_init")
        if self.activation is not None:
            lookup(ACTIVATIONS, self.activation, "activation")
        if self.dynamic is not None:
            lookup(DYNAMICS, self.dynamic, "dynamic")
        if isinstance(self.density, bool) or not 0 <= self.density <= 1:
            raise ValueError(f"density: expected a number in [0, 1]; got {self.density!r}")
        batches: object = self.score_batches
        if isinstance(batches, bool) or not isinstance(batches, int) or batches < 1:
            raise ValueError(f"score_batches: expected a positive integer; got {batches!r}")
        if self.density == 1 and self.dynamic is not None:
            raise ValueError(
                f"dynamic: expected a density below 1 for masks to move; got {self.dynamic!r} at density 1"
            )

    def settings(self) -> dict[str, Any]:
        """Return all of it as nested dictionaries that JSON can hold."""
        return asdict(self) | {"exclude": list(self.exclude)}


def recipe_for(model: str, what: str = "model") -> Recipe:
    """Return the paper's recipe for a model.

    Args:
        what: the argument's name, for the message.

    Raises:
        ValueError: an unknown model, or one of timm, for which the paper has none.
    """
    if model.startswith("timm:"):
        raise ValueError(f"recipe: expected one of {', '.join(sorted(RECIPES))}, as the paper has none for {model}")
    return lookup(RECIPES, model, what)
