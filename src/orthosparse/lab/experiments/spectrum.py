"""Spectrum: the singular values of a network's input-output Jacobian before its first step."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from orthosparse.lab.experiments._experiment import Experiment, Progress
from orthosparse.lab.experiments._start import train_config

_QUANTILES = 101


@dataclass(frozen=True, eq=False)
class Spectrum(Experiment):
    """The spectrum at the start that a `Training` of the same fields and seed would have, on its first batch.

    Attributes:
        iterations: of AI; None: its own number.
        samples: how many images of the first batch.
    """

    kind: ClassVar[str] = "spectrum"
    accelerated: ClassVar[bool] = True

    density: float = 1.0
    distribution: str = "erk"
    scheme: str = "eoi"
    activation: str = "relu"
    iterations: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    model: str = "mlp"
    data: str = "mnist"
    model_options: dict[str, Any] = field(default_factory=dict)
    dense_init: str | None = None
    score_batches: int = 1
    samples: int = 128

    def given(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults and are read."""
        unread = {"distribution", "scheme", "iterations", "options", "score_batches"} if self.density == 1 else set()
        return {name: value for name, value in super().given().items() if name not in unread}

    def cost(self) -> float:
        """Return a rough number of seconds."""
        return 5.0 + (20.0 if self.scheme == "ai" and self.density < 1 else 0.0)

    def run(
        self,
        seed: int,
        *,
        root: Path | str | None = None,
        out: Path | None = None,
        device: str = "auto",
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Return mean, deviation, extremes and 101 quantiles of all singular values of all samples."""
        del out, progress  # seconds: nothing to resume, nothing to show
        import torch

        from orthosparse import isometry
        from orthosparse.lab.training import launch
        from orthosparse.lab.training.assembly import assemble

        options = {**self.options, **({} if self.iterations is None else {"iterations": self.iterations})}
        config = train_config(self, options=options)
        state = assemble(config, seed, launch(device=device, precision="fp32"), root=root).state
        images, _ = next(iter(state.loader.epoch(0)))
        found = isometry.singular_values(state.network, images[: self.samples])
        values = found.values.double().flatten().sort().values.cpu()
        quantiles = torch.quantile(values, torch.linspace(0, 1, _QUANTILES, dtype=torch.float64))
        return {
            "mean": found.mean,
            "max": found.max,
            "min": found.min,
            "std": found.std,
            "values": values.numel(),
            "curves": {"quantiles": quantiles.tolist()},
        }
