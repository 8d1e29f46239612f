"""The picture of the front page: accuracy of 1000-layer networks against the epoch, for base, AI, EOI and dense.

``draw(Store("runs/paper/results.sqlite").rows(), Path("docs/assets/deep_networks.png"))`` makes it from the rows that
``orthosparse paper run deep_networks`` leaves.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rows import Row, RowIndex
from orthosparse.lab.paper.deep_networks import starts
from orthosparse.lab.rendering.charts import draw as draw_figure
from orthosparse.lab.rendering.charts import save
from orthosparse.lab.rendering.contents import Figure, Series
from orthosparse.lab.rendering.theme import LABELS

# The first that all rows have: runs that train together test after every epoch, single ones only after the last.
_CURVES = ("test_accuracy", "validation_accuracy")


def learning_curves(
    rows: Iterable[Row], experiments: Mapping[str, Experiment]
) -> tuple[dict[str, list[float | None]], str]:
    """Return the accuracy after every epoch in percent, by start and averaged over seeds, and what it is called.

    Args:
        experiments: by the name of the start; those without rows have no curve, nor have those that trained for other
            epochs, or in another precision, than most.
    """
    index = RowIndex(rows).comparing([*experiments.values()])
    found = {start: each for start, each in experiments.items() if index.is_comparable(each)}
    best, last = ({start: index.curve(each, curve) for start, each in found.items()} for curve in _CURVES)
    curves, label = (best, "test accuracy, %") if all(best.values()) else (last, "validation accuracy, %")
    return {start: [None if y is None else 100 * y for y in ys] for start, ys in curves.items() if ys}, label


def draw(
    rows: Iterable[Row],
    path: Path,
    *,
    model: str = "mlp1000",
    distribution: str = "erk",
    experiments: Mapping[str, Experiment] | None = None,
) -> Canvas:
    """Write the picture to `path` (its ending says the format), and return it.

    Args:
        distribution: of the sparse starts.
        experiments: other ones than the paper's, by start: base, ai, eoi, sao, dense.

    Raises:
        ValueError: there is no row of any of them.
    """
    chosen = starts(model, distribution) if experiments is None else experiments
    curves, label = learning_curves(rows, chosen)
    if not curves:
        raise ValueError(f"rows: expected some of {', '.join(each.label() for each in chosen.values())}; got none")
    series = [Series(LABELS[start], range(1, len(ys) + 1), ys, start) for start, ys in curves.items()]
    canvas = draw_figure(Figure("", "epoch", label, series, top=100, bottom=0))
    canvas.axes[0].set_ylim(0, 100)
    save(canvas, path)
    return canvas
