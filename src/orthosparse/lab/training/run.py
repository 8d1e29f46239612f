"""The description of a run, in plain values and in words, and the paper's values of omitted options."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, get_args

from orthosparse.lab.names import check_data, check_model, check_name, is_function
from orthosparse.lab.training.recipe import RECIPES, Recipe, described
from orthosparse.registry import lookup

# Options of the Rewirer. RigL stops moving its masks after three quarters (Evci et al. 2020), SET never does.
DYNAMICS: dict[str, dict[str, Any]] = {
    "rigl": {"grow": "gradient", "until": 0.75},
    "set": {"grow": "random", "until": 1.0},
}

STACKED = ("cnn1000", "mlp", "mlp1000", "resnet32", "resnet56", "resnet110", "vgg16c")  # models that can be stacked
# Fields that may differ between networks of one stack.
_OWN = {"density", "distribution", "scheme", "floor", "exclude", "options", "score_batches"}
_OWN |= {"dynamic", "every", "fraction", "until"}
_OWN_IN_RECIPE = {"dense_init", "gain", "bias_std"}


@dataclass(frozen=True)
class Run:
    """A network, its data, its recipe and its masks; each field has a help text and is an option of the commands.

    At density 1 the dense network is trained, and the fields of the sparse start are ignored.
    """

    model: str = field(
        metadata={"help": "Model of the paper (mlp, ...), timm:NAME or file.py:function.", "names": "model"}
    )
    data: str = field(metadata={"help": "Data set (digits, mnist, ...) or file.py:function.", "names": "data"})
    recipe: Recipe
    activation: str | None = described(None, "Activation; by default the model's own.", names="activation")
    model_options: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "Option NAME=VALUE of the model, such as depth=100; may be repeated.",
            "option": "model-option",
        },
    )
    density: float = described(1.0, "Fraction of active weights; 1 trains the dense network.")
    distribution: str = described("erk", "How many weights each layer keeps.", names="distribution")
    scheme: str = described("eoi", "Which weights these are, and their values.", names="scheme")
    floor: str = described("raise", "What to do with layers that get too few weights to be orthogonal.", names="floor")
    exclude: tuple[str, ...] = described((), "Layer (name or glob) that stays dense; may be repeated.")
    options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "Option NAME=VALUE of the distribution or the scheme; may be repeated.", "option": "option"},
    )
    score_batches: int = described(1, "Number of training batches for a distribution that scores weights on data.")
    dynamic: str | None = described(None, "Move the masks during training: set or rigl.", names="dynamic")
    every: int = described(800, "Steps between updates of the masks.")
    fraction: float = described(
        0.5, "Fraction of the active weights that an update moves; it falls to 0 along half a cosine."
    )
    until: float | None = described(
        None, "Fraction of the training after which masks stay; by default 0.75 (rigl) or 1 (set)."
    )
    validation: bool = described(True, "Hold out a tenth of the training samples for validation.")

    def __post_init__(self) -> None:
        """Check names and numbers before any data is read or any network built.

        Raises:
            ValueError: an unknown name (the known ones are listed), a number outside its range, or masks that
                move on a dense network.
        """
        _check_names(self)
        named = {each.name for each in (*fields(Run), *fields(Recipe))}
        for name in self.options:
            if name in named:
                raise ValueError(
                    f"options: expected those of the distribution or the scheme; got {name!r}, a field itself"
                )
        for name in ("density", "fraction", "until"):
            part: object = getattr(self, name)
            if part is None and name == "until":
                continue
            if isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part <= 1:
                raise ValueError(f"{name}: expected a number in [0, 1]; got {part!r}")
        for name in ("score_batches", "every"):
            count: object = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name}: expected a positive integer; got {count!r}")
        if self.density == 1 and self.dynamic is not None:
            raise ValueError(
                f"dynamic: expected a density below 1 for masks to move; got {self.dynamic!r} at density 1"
            )

    def settings(self) -> dict[str, Any]:
        """Return all fields as nested dictionaries of JSON values."""
        return plain_fields(self) | {"recipe": plain_fields(self.recipe)}


def plain_fields(description: Any) -> dict[str, Any]:
    """Return every field of a dataclass in plain values."""
    return {each.name: _plain(each, getattr(description, each.name)) for each in fields(description)}


def changed_fields(description: Any, unread: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields that differ from their defaults, in plain values, except those that are not read."""
    plain = plain_fields(description)
    read = [each for each in fields(description) if each.name not in unread]
    return {each.name: plain[each.name] for each in read if plain[each.name] != _default(each)}


def words_of(values: dict[str, Any]) -> list[str]:
    """Return fields in words.

    Example:
        >>> words_of({"model": "mlp", "density": 0.1, "epochs": 3, "options": {"iterations": 20}})
        ['mlp', 'density=0.1', 'epochs=3', 'iterations=20']
    """
    return [_word(name, value) for name, value in values.items()]


def _default(one: Field[Any]) -> Any:
    """Return the plain default of a field; MISSING, which equals no value, if it has none."""
    if one.default_factory is not MISSING:
        return _plain(one, one.default_factory())
    return one.default if one.default is MISSING else _plain(one, one.default)


def _plain(one: Field[Any], value: Any) -> Any:
    """Return a value as JSON has it: tuples become lists, and integers in a field of floats become floats."""
    if isinstance(value, int) and not isinstance(value, bool) and float in (one.type, *get_args(one.type)):
        return float(value)
    return list(value) if isinstance(value, tuple) else value


def _word(name: str, value: Any) -> str:
    """Return a value in words: names by themselves, and numbers with the name of the field."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(f"{inner}={value[inner]}" for inner in sorted(value))
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"


def _check_names(run: Run) -> None:
    check_model(run.model)
    check_data(run.data)
    names = {"activation": run.activation, "dynamic": run.dynamic, "dense_init": run.recipe.dense_init}
    for option, name in (names | {each: getattr(run, each) for each in ("distribution", "scheme", "floor")}).items():
        if name is not None:
            check_name(option, name)


def recipe_for(model: str, what: str = "model") -> Recipe:
    """Return the paper's recipe for a model.

    Args:
        what: the argument's name, for the message.

    Raises:
        ValueError: an unknown model, or one from timm or a file, for which the paper has none.
    """
    if model.startswith("timm:") or is_function(model):
        raise ValueError(f"recipe: expected one of {', '.join(sorted(RECIPES))}, as the paper has none for {model}")
    if what == "model":
        check_model(model)
    return lookup(RECIPES, model, what)


def why_not_stacked(run: Run) -> str | None:
    """Return why runs like this one cannot train in a stack, or None if they can.

    Example:
        >>> why_not_stacked(Run("mlp1000", "mnist", RECIPES["mlp1000"])) is None
        True
        >>> why_not_stacked(Run("resnet50", "imagenet", RECIPES["resnet50"]))
        'model: expected one of cnn1000, mlp, mlp1000, resnet32, resnet56, resnet110, vgg16c; got resnet50'
    """
    if run.model not in STACKED:
        return f"model: expected one of {', '.join(STACKED)}; got {run.model}"
    wanted: dict[str, Any] = {"optimizer": "sgd", "loss": "cross_entropy", "mixup": 0, "cutmix": 0, "clip": 0}
    for name, value in (wanted | {"accumulate": 1}).items():
        if getattr(run.recipe, name) != value:
            return f"{name}: expected {value} for networks that train together; got {getattr(run.recipe, name)}"
    return None


def stack_key(run: Run) -> str:
    """Return the settings that runs in one stack share, as a key; starts, densities and masks are not among them.

    Raises:
        ValueError: runs like this one cannot.
    """
    if (reason := why_not_stacked(run)) is not None:
        raise ValueError(reason)
    settings = run.settings()
    recipe = {name: value for name, value in settings.pop("recipe").items() if name not in _OWN_IN_RECIPE}
    shared = {name: value for name, value in settings.items() if name not in _OWN}
    return json.dumps({**shared, "recipe": recipe}, sort_keys=True)


def check_stackable(runs: Sequence[Run]) -> None:
    """Raise a ValueError that names the settings in which runs for one stack differ."""
    if not runs:
        raise ValueError("pairs: expected at least one; got none")
    first, *others = [json.loads(stack_key(run)) for run in runs]
    for number, other in enumerate(others, start=1):
        names = [name for name in first if first[name] != other[name]]
        if names:
            raise ValueError(
                f"pairs: expected one shape, data set and recipe; number {number} differs in {', '.join(names)}"
            )


# The paper's value of every option of a distribution or a scheme. A committed row is known by a key that names only
# what differs from the defaults. So that it means the same experiment for ever, what it leaves out is looked up here,
# and never in the library, whose defaults serve its users and may change. A new option of the library gets its value
# here, the one under which rows made before it keep their bits.
PAPER_OPTIONS: dict[str, dict[str, Any]] = {
    # distributions
    "dense_ends": {"over": "inner", "ends": None},
    "er": {},
    "erk": {"compat": None},
    "grasp": {"compat": None, "temperature": 200.0},
    "magnitude": {},
    "snip": {"compat": None},
    "snip_iterative": {"rounds": 60},
    "synflow": {"compat": None, "rounds": 100, "input_shape": None},
    "uniform": {"compat": None},
    # schemes; where AI descends is for the machine to say
    "ai": {"iterations": 10_000, "learning_rate": 0.1, "tolerance": 1e-6},
    "base": {},
    "eoi": {
        "align": "none",
        "angle": None,
        "center_density": None,
        "core": None,
        "depthwise": "keep",
        "start": "identity",
        "stop": "exact",
        "strided": "delta",
        "tap": "center",
    },
    "sao": {"activation": "linear", "degree": "exact"},
    "scaled": {},
}


def with_paper_options(distribution: str, scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a start, the paper's values for those that are left out.

    Example:
        >>> with_paper_options("erk", "ai", {"iterations": 1000})
        {'compat': None, 'iterations': 1000, 'learning_rate': 0.1, 'tolerance': 1e-06}
    """
    return {**PAPER_OPTIONS.get(distribution, {}), **PAPER_OPTIONS.get(scheme, {}), **options}
