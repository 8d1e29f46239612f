"""The demo's page: what was trained, why it went as it did, and the sampler behind it."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

import orthosparse
from orthosparse.lab.demo.charts import spectra
from orthosparse.lab.demo.isometries import Isometry
from orthosparse.lab.demo.networks import Shape
from orthosparse.lab.demo.sampler import Sample
from orthosparse.lab.demo.tables import network_table, sampler_table
from orthosparse.lab.demo.training import History
from orthosparse.lab.rendering.contents import Page, Picture, Section, Tile
from orthosparse.lab.rendering.figures import histograms, lines
from orthosparse.lab.rendering.pictures import picture_of
from orthosparse.lab.rendering.theme import LABELS
from orthosparse.lab.training import Recipe

_SHOWN = "fc2"  # the layer whose masks are shown: the first square one behind the input
_STARTS = {
    "dense": "orthogonal, every weight active",
    "base": "the dense weights times a random mask",
    "ai": "base, its weights optimized towards orthogonality",
    "eoi": "exactly orthogonal and sparse from the start",
}


@dataclass(frozen=True, eq=False)
class Demo:
    """All that the demo found, each by the name of the start (in one order) where there are four."""

    shape: Shape
    recipe: Recipe
    samples: Sequence[Sample]
    networks: dict[str, nn.Module]
    densities: dict[str, float]
    isometries: dict[str, Isometry]
    history: History


def page_of(demo: Demo, foot: Sequence[str]) -> Page:
    """Return the page."""
    shape = demo.shape
    lead = (
        f"A tanh network of {shape.depth} layers learns handwritten digits from four starts: dense orthogonal weights, "
        f"and three sparse ones that keep {100 * shape.density:g} % of them. Below: how far each got, and why."
    )
    tiles = [
        Tile(f"{LABELS[name]} start", f"{100 * accuracy:.1f} %", _STARTS[name], name)
        for name, accuracy in zip(demo.isometries, demo.history.accuracies[-1], strict=True)
    ]
    return Page(
        "Sparse training from an exactly orthogonal start",
        lead,
        tiles,
        [_training(demo), _isometry(demo), _masks(demo), _sampler(demo)],
        foot,
    )


def _training(demo: Demo) -> Section:
    epochs = [*range(1, len(demo.history.losses) + 1)]
    losses = _by_start(demo, demo.history.losses)
    accuracies = _by_start(demo, [[100 * value for value in row] for row in demo.history.accuracies])
    recipe = demo.recipe
    text = (
        f"{demo.shape.depth} layers of width {demo.shape.width}, {recipe.epochs} epochs of SGD (Nesterov momentum 0.9, "
        f"rate {recipe.lr:g}, batches of {recipe.batch}) on the same batches. The test accuracy is that after the "
        "last epoch; one in ten is chance."
    )
    figures = [
        lines("Training loss", {n: (epochs, ys) for n, ys in losses.items()}, x="epoch", y="cross-entropy"),
        lines("Test accuracy", {n: (epochs, ys) for n, ys in accuracies.items()}, x="epoch", y="test accuracy, %"),
    ]
    table = network_table(demo.isometries, demo.densities, demo.history)
    return Section("Trained side by side", text, [table], figures)


def _isometry(demo: Demo) -> Section:
    text = (
        "The singular values of the input-output Jacobian say how much each direction of the input is stretched on its "
        "way to the output. Where they stay near 1, gradients reach the first layer as large as they left the last; "
        "where every layer shrinks the signal, it is gone long before."
    )
    means = {n: (s.depths, s.means) for n, s in demo.isometries.items()}
    values = {n: s.values.tolist() for n, s in demo.isometries.items()}
    figures = [
        lines(
            "Mean singular value up to each layer",
            means,
            x="layer",
            y="mean singular value",
            log=True,
            caption="Before training; the axis is logarithmic.",
        ),
        histograms(
            "Singular values from input to output",
            values,
            x="singular value",
            caption="Before training, all inputs together.",
        ),
    ]
    return Section("Before training: does the signal get through?", text, figures=figures)


def _masks(demo: Demo) -> Section:
    pictures = []
    for name, network in demo.networks.items():
        weight = orthosparse.find_layers(network)[_SHOWN].weight()
        mask = orthosparse.masks_of(network).get(_SHOWN)
        mask = weight.new_ones(weight.shape).bool() if mask is None else mask
        pictures.append(Picture(LABELS[name], picture_of(weight.detach(), mask), f"{int(mask.sum()):,} active entries"))
    text = (
        "One layer of each network before training, one pixel per weight: blue is positive, red negative, stronger is "
        "larger. Base and AI live on one random mask; EOI has as many entries, where its rotations put them."
    )
    return Section("Masks", text, pictures=pictures)


def _sampler(demo: Demo) -> Section:
    first = demo.samples[0]
    text = (
        f"EOI draws its matrices as products of random Givens rotations. A {len(first.mask)} x {len(first.mask)} one "
        f"at density {first.density:.3g} has exactly as many entries as asked for, and is orthogonal up to rounding. "
        "Next to it: a dense orthogonal matrix, and the same with as many of its entries kept at random."
    )
    mask = Picture("The sparse orthogonal matrix", picture_of(first.values, first.mask))
    return Section("The sampler", text, [sampler_table(demo.samples)], [spectra(demo.samples), mask])


def _by_start(demo: Demo, rows: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    return {name: [row[index] for row in rows] for index, name in enumerate(demo.isometries)}
