"""Training: one network from one start to its test accuracy, with the curves of its epochs."""

import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from orthosparse.lab.experiments._experiment import Experiment, Progress, words_of
from orthosparse.lab.experiments._start import train_config

# Seconds of one step of 128 images on a fast GPU, and training images: rough, for the estimate alone.
_STEP = {"mlp": 0.001, "mlp1000": 0.03, "cnn1000": 0.2, "resnet32": 0.004, "resnet56": 0.007, "resnet110": 0.013}
_STEP |= {"vgg16c": 0.005, "efficientnet_b0": 0.007, "resnet50": 0.05, "deit3_small": 0.05}
_IMAGES = {"digits": 1_294, "mnist": 54_000, "fashion_mnist": 54_000, "cifar10": 45_000, "cifar100": 45_000}
_IMAGES |= {"tiny_imagenet": 100_000, "imagenet": 1_281_167}
_SETUP, _AI = 10.0, 60.0
_UNREAD_WHEN_DENSE = {"distribution", "scheme", "options", "exclude", "floor", "score_batches"}


@dataclass(frozen=True, eq=False)
class Training(Experiment):
    """A network trained and tested, as `lab.training.train` does it.

    Attributes:
        density: 1 trains the dense network; the fields of the sparse start are not read then and not part of the key.
        options: further arguments of `sparsify`, for the distribution or the scheme.
        recipe: the model whose recipe is taken; None: this model's. The fields below it replace values of the recipe
            where they are not None.
    """

    kind: ClassVar[str] = "training"
    accelerated: ClassVar[bool] = True

    model: str
    data: str
    density: float = 1.0
    distribution: str = "erk"
    scheme: str = "eoi"
    activation: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    model_options: dict[str, Any] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    floor: str = "raise"
    score_batches: int = 1
    dynamic: str | None = None
    every: int = 800
    fraction: float = 0.5
    until: float | None = None
    validation: bool = True
    recipe: str | None = None
    epochs: int | None = None
    lr: float | None = None
    batch: int | None = None
    weight_decay: float | None = None
    schedule: str | None = None
    dense_init: str | None = None
    gain: float | None = None
    bias_std: float | None = None
    precision: str | None = None

    def unread(self) -> set[str]:
        """Return the fields of the sparse start, for a dense network."""
        return _UNREAD_WHEN_DENSE if self.density == 1 else set()

    def label(self) -> str:
        """Return the given fields in a few words, the start among them."""
        start = {} if self.density == 1 else {"distribution": self.distribution, "scheme": self.scheme}
        given = self.given() | start
        order = [field.name for field in fields(self) if field.name in given]
        return " ".join([self.kind, *words_of({name: given[name] for name in order})])

    def config(self) -> Any:
        """Return the TrainConfig.

        Raises:
            ValueError: an unknown name or a value out of range.
        """
        return train_config(self)

    def described(self) -> dict[str, Any]:
        """Return every field, those of the recipe as they are in the end."""
        recipe = asdict(self.config().recipe)
        own = super().described()
        return {name: recipe[name] if value is None and name in recipe else value for name, value in own.items()}

    def cost(self) -> float:
        """Return a rough number of seconds on a fast GPU."""
        recipe = self.config().recipe
        steps: int = recipe.epochs * math.ceil(_IMAGES.get(self.data, 50_000) / recipe.batch)
        step: float = _STEP.get(self.model, 0.05) * max(1.0, recipe.batch / 128)
        return _SETUP + steps * step + (_AI if self.scheme == "ai" and self.density < 1 else 0.0)

    def run(
        self,
        seed: int,
        *,
        root: Path | str | None = None,
        out: Path | None = None,
        device: str = "auto",
        progress: Progress | None = None,
        compiled: bool = False,
    ) -> dict[str, Any]:
        """Train, going on from a checkpoint in `out` if there is one, and test after the last epoch.

        A loss that is not finite ends the training; that is a result too: ``diverged``, without a test accuracy.

        Args:
            compiled: let torch compile the network.
        """
        from orthosparse.lab.experiments._watcher import Watcher
        from orthosparse.lab.training import NonFiniteError, train

        watcher = Watcher(progress)
        try:
            row = train(
                self.config(),
                seed=seed,
                root=root,
                out=out,
                resume=out is not None,
                logs=(),
                callbacks=[watcher],
                compiled=compiled,
                device=device,
            )
        except NonFiniteError as error:
            return {"diverged": True, "diverged_epoch": error.epoch + 1, **watcher.measured()}
        tested = {name: row[name] for name in ("test_accuracy", "test_loss", "density", "parameters")}
        return {"diverged": False, **tested, **watcher.measured(row)}
