"""InitRuntime: how long a sparse start takes, and the first epoch after it."""

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from orthosparse.lab.experiments._experiment import Experiment
from orthosparse.lab.experiments.training import Training


@dataclass(frozen=True, eq=False)
class InitRuntime(Experiment):
    """The seconds from nothing to the end of the first epoch, in their three parts.

    The clock starts on a warm device: before the first of a distribution, a process runs its base start once untimed.
    AI computes on the device that trains.
    """

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

    def run(self, seed: int, *, root: Path | str | None = None, device: str = "auto", **where: Any) -> dict[str, Any]:
        """Return ``setup_seconds`` (data, network, dense start), ``sparsify_seconds``, ``epoch_seconds``, their sum."""
        del where  # nothing to resume, too short to watch
        _warm_up(replace(self, scheme="base", options={}), root, device)
        parts = self._parts(seed, root, device)
        return {**parts, "seconds": sum(parts.values())}

    def _parts(self, seed: int, root: Path | str | None, device: str) -> dict[str, float]:
        from itertools import islice

        import orthosparse
        from orthosparse.lab.seeds import generators
        from orthosparse.lab.training import fit, launch
        from orthosparse.lab.training.assembly import assemble
        from orthosparse.lab.training.devices import now
        from orthosparse.lab.training.run import with_paper_options

        own: dict[str, Any] = {
            "options": self.options,
            "model_options": self.model_options,
            "score_batches": self.score_batches,
        }
        own |= {"density": self.density, "distribution": self.distribution, "scheme": self.scheme}
        config = Training(self.model, self.data, **own, batch=self.batch, epochs=1)
        fabric = launch(device=device, precision=config.recipe.precision)
        options = with_paper_options(self.distribution, self.scheme, self.options)
        if self.scheme == "ai":
            options.setdefault("device", fabric.device)
        begin = now(fabric.device)
        dense = assemble(replace(config, density=1.0), seed, fabric, root=root)
        assembled = now(fabric.device)
        network = dense.networks.network  # type: ignore[attr-defined]
        orthosparse.sparsify(
            network,
            self.density,
            distribution=self.distribution,
            scheme=self.scheme,
            batch=list(islice(dense.loader.epoch(0), self.score_batches)),
            gain=config.recipe.gain,
            bias_std=config.recipe.bias_std,
            generator=generators(seed).mask,
            **options,
        )
        sparse = now(fabric.device)
        state = assemble(
            config, seed, fabric, root=root, saved=network.state_dict()
        )  # an optimizer that knows the masks
        ready = now(fabric.device)
        fit(state)
        return {
            "setup_seconds": assembled - begin,
            "sparsify_seconds": sparse - assembled,
            "epoch_seconds": now(fabric.device) - ready,
        }


@cache
def _warm_up(experiment: InitRuntime, root: Path | str | None, device: str) -> None:
    """Run an experiment once a process: what a device loads and chooses at first is nobody's time."""
    experiment._parts(0, root, device)
