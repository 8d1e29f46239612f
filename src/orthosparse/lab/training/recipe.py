"""How a network is trained: the paper's recipes by model, and the learning rate of an epoch."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

from orthosparse.lab.names import check_name

SCHEDULES = ("steps", "cosine", "constant")
OPTIMIZERS = ("sgd", "adamw", "lamb")
LOSSES = ("cross_entropy", "bce")
PRECISIONS = ("fp32", "tf32", "bf16", "fp64")


def described(default: Any, help: str, **more: str) -> Any:  # noqa: A002 - its name on the command line
    """Return a field of a description that is an option of the commands.

    Args:
        more: ``names``, the table whose names it takes, see `lab.names`; ``needs``, the value of another field without
            which it has no effect; the name alone stands for any value but 0.
    """
    return field(default=default, metadata={"help": help, **more})


@dataclass(frozen=True)
class Recipe:
    """How a network is trained, in plain values; each field has a help text and is an option of `orthosparse train`.

    The schedule ``steps`` multiplies the learning rate by `gamma` at epochs // 2 and at int(epochs * 3 / 4); ``cosine``
    lowers it towards `min_lr`. The learning rate changes only between epochs.
    """

    epochs: int = field(metadata={"help": "Epochs to train for."})
    lr: float = field(metadata={"help": "Learning rate."})
    batch: int = described(128, "Samples per optimizer step, over all processes.")
    weight_decay: float = described(1e-4, "Weight decay.")
    momentum: float = described(0.9, "Momentum of SGD.", needs="optimizer=sgd")
    nesterov: bool = described(True, "Use Nesterov momentum with SGD.", needs="optimizer=sgd")
    optimizer: str = described("sgd", "Optimizer: sgd, adamw or lamb.", names="optimizer")
    schedule: str = described("steps", "Schedule of the learning rate: steps, cosine or constant.", names="schedule")
    gamma: float = described(
        0.1, "Factor of the learning rate at each milestone of the schedule steps.", needs="schedule=steps"
    )
    min_lr: float = described(0.0, "Learning rate that the schedule cosine falls towards.", needs="schedule=cosine")
    warmup: int = described(0, "Epochs of warm-up, in which the learning rate rises from --warmup-lr.")
    warmup_lr: float = described(0.0, "Learning rate at the start of the warm-up.", needs="warmup")
    decay_vectors: bool = described(True, "Apply weight decay to biases and normalization too.")
    loss: str = described("cross_entropy", "Loss: cross_entropy or bce.", names="loss")
    label_smoothing: float = described(0.0, "Label smoothing for cross_entropy.", needs="loss=cross_entropy")
    mixup: float = described(0.0, "Parameter of mixup's Beta distribution; 0 for no mixup.")
    cutmix: float = described(0.0, "Parameter of cutmix's Beta distribution; 0 for no cutmix.")
    clip: float = described(0.0, "Clip the gradient to this norm; 0 for no limit, but lamb always has one of 1.")
    accumulate: int = described(1, "Number of parts that a batch is split into, to save memory.")
    precision: str = described("tf32", "Precision: fp32, tf32 (on a GPU), bf16 (autocast) or fp64.", names="precision")
    dense_init: str = described("conv_orthogonal", "Dense initialization.", names="dense_init")
    gain: float = described(1.0, "Gain of the initial weights (sigma_w).")
    bias_std: float = described(0.0, "Standard deviation of the initial biases (sigma_b).")

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ValueError: a value outside its range, or an unknown name.
        """
        for name in ("schedule", "optimizer", "loss", "precision"):
            check_name(name, getattr(self, name))
        for name, least in (("epochs", 1), ("batch", 1), ("accumulate", 1), ("warmup", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                expected = "a positive integer" if least else "an integer, 0 or more"
                raise ValueError(f"{name}: expected {expected}; got {value!r}")
        for name in (each.name for each in fields(self) if each.type is float):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"{name}: expected a finite number, 0 or more; got {value!r}")
        if self.label_smoothing > 1:
            raise ValueError(f"label_smoothing: expected a number in [0, 1]; got {self.label_smoothing!r}")
        if self.accumulate > self.batch:
            raise ValueError(f"accumulate: expected at most the batch ({self.batch}); got {self.accumulate}")
        if self.nesterov and self.optimizer == "sgd" and self.momentum == 0:
            raise ValueError("momentum: expected more than 0 with nesterov; got 0")

    @property
    def milestones(self) -> tuple[int, int]:
        """The epochs at which ``steps`` lowers the rate (counted from 0); the first one has all of it."""
        return max(1, self.epochs // 2), max(1, int(self.epochs * 3 / 4))


def learning_rate(recipe: Recipe, epoch: int) -> float:
    """Return the rate during `epoch`, counted from 0.

    Example:
        >>> [learning_rate(Recipe(epochs=8, lr=1.0, gamma=0.5), epoch) for epoch in (0, 3, 4, 6)]
        [1.0, 1.0, 0.5, 0.25]
    """
    if epoch < recipe.warmup:
        return recipe.warmup_lr + (recipe.lr - recipe.warmup_lr) * epoch / recipe.warmup
    if recipe.schedule == "constant":
        return recipe.lr
    if recipe.schedule == "cosine":
        fall = (1 + math.cos(math.pi * epoch / recipe.epochs)) / 2
        return recipe.min_lr + (recipe.lr - recipe.min_lr) * fall
    return recipe.lr * recipe.gamma ** sum(epoch >= milestone for milestone in recipe.milestones)


_DEEP = Recipe(epochs=100, lr=1e-4, gain=1.0247, bias_std=0.00448)
_CIFAR = Recipe(epochs=200, lr=0.1)

# The training regimes of the paper (appendix "Training Regime"), by model. Nesterov, decay on every parameter and the
# milestones are the released code's; DeiT III is the recipe of its authors' `deit_small_patch16_LS`, without repeated
# augmentation.
RECIPES = {
    "mlp": Recipe(epochs=100, lr=1e-2, dense_init="orthogonal"),
    "mlp1000": replace(_DEEP, dense_init="orthogonal"),
    "cnn1000": _DEEP,
    "resnet32": _CIFAR,
    "resnet56": _CIFAR,
    "resnet110": _CIFAR,
    "vgg16c": _CIFAR,
    "efficientnet_b0": Recipe(epochs=120, lr=1e-2, weight_decay=1e-3),
    "resnet50": Recipe(epochs=90, lr=0.1, dense_init="default"),
    "deit3_small": Recipe(
        epochs=800,
        lr=4e-3,
        batch=2048,
        weight_decay=0.05,
        decay_vectors=False,
        optimizer="lamb",
        schedule="cosine",
        min_lr=1e-5,
        warmup=5,
        warmup_lr=1e-6,
        loss="bce",
        mixup=0.8,
        cutmix=1.0,
        precision="bf16",
        dense_init="default",
    ),
}
