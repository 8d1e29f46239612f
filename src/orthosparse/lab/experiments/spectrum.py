"""Spectrum: the singular values of a network's input-output Jacobian before its first step."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from orthosparse.lab.experiments._experiment import Experiment

_QUANTILES = 21


@dataclass(frozen=True, eq=False)
class Spectrum(Experiment):
    """One point of the study of section 5.1 (see `lab.paper.singular_values`), with the quantiles of its spectrum.

    The start is that of a `Training` of the same fields and seed, but for density 1, which goes through the
    distribution and the scheme too. The inputs are the first batch of training, which SNIP and GraSP use too.

    Attributes:
        iterations: of AI; None: its own number. The other schemes do not read it.
        samples: images of the batch.
    """

    kind: ClassVar[str] = "spectrum"
    accelerated: ClassVar[bool] = True

    activation: str
    distribution: str
    scheme: str
    density: float
    iterations: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    model: str = "mlp"
    data: str = "mnist"
    model_options: dict[str, Any] = field(default_factory=dict)
    dense_init: str = "orthogonal"
    samples: int = 128

    def unread(self) -> set[str]:
        """Return the iterations, which AI alone has."""
        return set() if self.scheme == "ai" else {"iterations"}

    def cost(self) -> float:
        """Return a rough number of seconds."""
        return 1.0 + (20.0 if self.scheme == "ai" else 0.0)

    def run(self, seed: int, *, root: Path | str | None = None, device: str = "auto", **where: Any) -> dict[str, Any]:
        """Return mean, deviation, extremes and 21 quantiles of all singular values of all samples."""
        del where  # seconds: nothing to resume, nothing to show
        import torch

        from orthosparse import isometry

        model, images, report = self._start(seed, root, device)
        found = isometry.singular_values(model, images)
        values = found.values.double().flatten().cpu()
        quantiles = torch.quantile(values, torch.linspace(0, 1, _QUANTILES, dtype=torch.float64))
        return {
            "mean": found.mean,
            "max": found.max,
            "min": found.min,
            "std": found.std,
            "values": values.numel(),
            "got": report.got,
            "worst_orthogonality": max(row.orthogonality for row in report.rows),
            "raised_layers": sum("raised" in row.note for row in report.rows),
            "curves": {"quantiles": quantiles.tolist()},
        }

    def _start(self, seed: int, root: Path | str | None, device: str) -> tuple[Any, Any, Any]:
        """Return the network, its inputs and the report of `sparsify`."""
        import orthosparse
        from orthosparse.lab.data import Loader, load
        from orthosparse.lab.models import build, dense_init
        from orthosparse.lab.seeds import generators
        from orthosparse.lab.training.devices import device_of
        from orthosparse.lab.training.run import with_paper_options

        torch_device, rng = device_of(device), generators(seed)
        data = load(self.data, root, device=torch_device)
        loader = Loader(data.train, batch=self.samples, seed=rng.data.initial_seed(), device=torch_device)
        images, labels = next(loader.epoch(0))
        shape: dict[str, Any] = {"classes": data.classes, "in_shape": data.in_shape, "activation": self.activation}
        model = build(self.model, generator=rng.init, **shape, **self.model_options).to(torch_device)
        dense_init(model, self.dense_init, generator=rng.init)
        own = with_paper_options(self.distribution, self.scheme, self.options)
        if self.scheme == "ai" and self.iterations is not None:
            own["iterations"] = self.iterations
        report = orthosparse.sparsify(
            model,
            self.density,
            distribution=self.distribution,
            scheme=self.scheme,
            batch=(images, labels),
            generator=rng.mask,
            **own,
        )
        return model, images, report
