"""InitRuntime: how long a sparse start takes, and the first epoch after it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from orthosparse.lab.experiments._experiment import Experiment, Progress
from orthosparse.lab.experiments._start import train_config


@dataclass(frozen=True, eq=False)
class InitRuntime(Experiment):
    """The seconds from nothing to the end of the first epoch, in their three parts."""

    kind: ClassVar[str] = "init_runtime"
    accelerated: ClassVar[bool] = True

    model: str
    data: str
    distribution: str
    scheme: str
    density: float = 0.1
    options: dict[str, Any] = field(default_factory=dict)
    model_options: dict[str, Any] = field(default_factory=dict)
    score_batches: int = 1
    batch: int | None = None

    def cost(self) -> float:
        """Return a rough number of seconds on a fast GPU."""
        return 30.0 + (60.0 if self.scheme == "ai" else 0.0)

    def run(
        self,
        seed: int,
        *,
        root: Path | str | None = None,
        out: Path | None = None,
        device: str = "auto",
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Return ``setup_seconds`` (data, network, dense start), ``sparsify_seconds``, ``epoch_seconds``, their sum."""
        del out, progress  # nothing to resume, too short to watch
        from dataclasses import replace
        from itertools import islice

        import orthosparse
        from orthosparse.lab.experiments._clock import now
        from orthosparse.lab.seeds import generators
        from orthosparse.lab.training import fit, launch
        from orthosparse.lab.training.assembly import assemble

        config = train_config(self, epochs=1)
        fabric = launch(device=device, precision=config.recipe.precision)
        times = [now(fabric.device)]
        dense = assemble(replace(config, density=1.0), seed, fabric, root=root).state
        times.append(now(fabric.device))
        orthosparse.sparsify(
            dense.network,
            self.density,
            distribution=self.distribution,
            scheme=self.scheme,
            batch=list(islice(dense.loader.epoch(0), self.score_batches)),
            gain=config.recipe.gain,
            bias_std=config.recipe.bias_std,
            generator=generators(seed).mask,
            **self.options,
        )
        times.append(now(fabric.device))
        start = dense.network.state_dict()
        state = assemble(config, seed, fabric, root=root, saved=start).state  # an optimizer that knows the masks
        begin = now(fabric.device)
        fit(state)
        parts = [times[1] - times[0], times[2] - times[1], now(fabric.device) - begin]
        named = dict(zip(("setup_seconds", "sparsify_seconds", "epoch_seconds"), parts, strict=True))
        return {**named, "seconds": sum(parts)}
