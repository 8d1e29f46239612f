"""The table that deploy returns: the form and times of each layer, and the latency of the whole network."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from orthosparse.tables import html_table, text_table


@dataclass(frozen=True)
class DeployedLayer:
    """One layer in a `DeployTable`.

    Attributes:
        layer: name of the layer.
        shape: shape of its weight after dead units are removed.
        density: fraction of these weights that are not zero.
        form: ``dense``, ``dense channels-last``, ``entries``, ``block:64`` (or another size) or ``2:4``.
        times: seconds per call, by form, on the input that the layer gets from the example.
        ratio: time of the faster dense form divided by that of the chosen form.
        note: why the layer is dense, or why a form was rejected.
    """

    layer: str
    shape: tuple[int, ...]
    density: float
    form: str
    times: Mapping[str, float] = field(default_factory=dict)
    ratio: float = 1.0
    note: str = ""

    def times_text(self) -> dict[str, str]:
        """Return the times in milliseconds, as text."""
        return _milliseconds(self.times)

    def cells(self) -> tuple[str, ...]:
        """Return its row in a table, below the `headings` of a DeployTable."""
        dense = [form for form in self.times if form.startswith("dense")]
        times = self.times_text()
        return (
            self.layer,
            "x".join(map(str, self.shape)),
            f"{self.density:.4f}",
            self.form,
            times[min(dense, key=self.times.__getitem__)] if dense else "",
            times.get(self.form, ""),
            f"{self.ratio:.2f}x" if self.times else "",
            self.note,
        )


@dataclass(frozen=True)
class DeployTable:
    """The result of `deploy`; ``print`` it, show it in a notebook, or call ``to_dict()``.

    Attributes:
        headings: headings of the columns.
        rows: one row for each layer.
        latency: seconds per call of the whole network: ``eager``, ``channels-last`` and ``compiled`` are the given
            network with its zeros; ``shrunk dense`` has no batch norms and no dead units; ``deployed`` and
            ``deployed compiled`` have each layer in its own form.
        chosen: the entry of `latency` that was returned.
        removed: number of output units that each layer lost.
        live: number of nonzero weights in the layers of the returned network.
        weights: number of weights in the layers of the given network, including zeros.
        bytes: size of all parameters and buffers, ``given`` and ``deployed``.
        error: largest difference between the outputs on the example, divided by the largest output.
        notes: what was not done, and why.
    """

    headings: ClassVar = ("layer", "shape", "density", "form", "dense", "chosen", "ratio", "note")

    rows: tuple[DeployedLayer, ...]
    latency: Mapping[str, float]
    chosen: str
    removed: Mapping[str, int]
    live: int
    weights: int
    bytes: Mapping[str, int]
    error: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def given(self) -> str:
        """The entry of `latency` that is the fastest form of the given network."""
        forms = [name for name in ("eager", "channels-last", "compiled") if name in self.latency]
        return min(forms, key=self.latency.__getitem__)

    @property
    def ratio(self) -> float:
        """Time of the fastest form of the given network divided by that of the returned one."""
        return self.latency[self.given] / self.latency[self.chosen]

    def latency_text(self) -> dict[str, str]:
        """Return `latency` in milliseconds, as text."""
        return _milliseconds(self.latency)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self) | {"ratio": self.ratio}

    def __str__(self) -> str:
        cells = [row.cells() for row in self.rows]
        table = text_table(self.headings, cells, left=("layer", "shape", "form", "note"))
        return "\n".join([table, "", *self._last_lines()])

    def _repr_html_(self) -> str:
        return html_table(self.headings, [row.cells() for row in self.rows], self._last_lines())

    def _last_lines(self) -> list[str]:
        times = ", ".join(f"{name} {time}" for name, time in self.latency_text().items())
        units = sum(self.removed.values())
        before, after = (f"{self.bytes[key] / 2**20:,.1f}" for key in ("given", "deployed"))
        return [
            f"{self.chosen}: {self.ratio:.2f}x the fastest form of the given network ({times})",
            f"{self.live:,} of {self.weights:,} weights are not zero; dead units removed: {units:,}; "
            f"{before} -> {after} MiB; outputs within {self.error:.1e}",
            *self.notes,
        ]


def _milliseconds(times: Mapping[str, float]) -> dict[str, str]:
    """Return seconds in milliseconds with three decimals, or three significant digits if the time is short."""
    return {name: f"{1e3 * seconds:{'.3f' if seconds >= 1e-4 else '.3g'}} ms" for name, seconds in times.items()}
