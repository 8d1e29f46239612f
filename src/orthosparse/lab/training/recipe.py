"""How a network is trained: the paper's recipes by name, and the learning rate at any moment of one."""

import math
from dataclasses import dataclass, fields, replace

SCHEDULES = ("steps", "cosine", "constant")
OPTIMIZERS = ("sgd", "adamw", "lamb")
LOSSES = ("cross_entropy", "bce")
PRECISIONS = ("fp32", "tf32", "bf16", "fp64")


@dataclass(frozen=True)
class Recipe:
    """Everything that the training loop needs to know, as plain values.

    Attributes:
        batch: samples of one optimizer step, over all ranks and accumulated parts.
        schedule: ``steps`` multiplies the rate by `gamma` at epochs // 2 and at int(epochs * 3 / 4); ``cosine`` goes
            down to `min_lr`; ``constant`` stays. The rate changes between epochs only.
        warmup: epochs over which the rate rises from `warmup_lr`.
        decay_vectors: whether weight decay reaches biases and normalisation too (the paper: yes).
        precision: ``tf32`` is float32 with TF32 products on a GPU and plain float32 elsewhere; ``bf16`` is autocast.
        accumulate: parts into which a batch is cut to save memory.
        clip: the largest norm of the gradient, 0 for no limit.
        dense_init, gain, bias_std: the dense start (kind, sigma_w, sigma_b), which sparse schemes begin from.
    """

    epochs: int
    lr: float
    batch: int = 128
    weight_decay: float = 1e-4
    momentum: float = 0.9
    nesterov: bool = True
    optimizer: str = "sgd"
    schedule: str = "steps"
    gamma: float = 0.1
    min_lr: float = 0.0
    warmup: int = 0
    warmup_lr: float = 0.0
    decay_vectors: bool = True
    loss: str = "cross_entropy"
    label_smoothing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    clip: float = 0.0
    accumulate: int = 1
    precision: str = "tf32"
    dense_init: str = "conv_orthogonal"
    gain: float = 1.0
    bias_std: float = 0.0

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ValueError: a value outside its range, or an unknown name.
        """
        _check_names(self)
        for field in ("epochs", "batch", "accumulate"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{field}: expected a positive integer; got {value!r}")
        for field in (f.name for f in fields(self) if f.type is float):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"{field}: expected a finite number, 0 or more; got {value!r}")
        if self.accumulate > self.batch:
            raise ValueError(f"accumulate: expected at most the batch ({self.batch}); got {self.accumulate}")
        if self.nesterov and self.optimizer == "sgd" and self.momentum == 0:
            raise ValueError("momentum: expected more than 0 with nesterov; got 0")

    @property
    def milestones(self) -> tuple[int, int]:
        """The epochs at which ``steps`` lowers the rate (counted from 0)."""
        return self.epochs // 2, int(self.epochs * 3 / 4)


def _check_names(recipe: Recipe) -> None:
    for field, known in (
        ("schedule", SCHEDULES),
        ("optimizer", OPTIMIZERS),
        ("loss", LOSSES),
        ("precision", PRECISIONS),
    ):
        value = getattr(recipe, field)
        if value not in known:
            raise ValueError(f"{field}: expected one of {', '.join(known)}; got {value!r}")


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
