"""The charts of the demo that are its own: the sampler's matrix and spectra."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orthosparse.lab.demo.sampler import Sample
from orthosparse.lab.rendering import light, styled

_LABELS = {"eoi": "sparse, by rotations", "dense": "dense, by QR", "base": "masked at random"}


def spectra(samples: Sequence[Sample]) -> Figure:
    """Return the singular values of all matrices, the largest first."""
    with styled():
        figure = Figure(figsize=(5.6, 3.3), layout="constrained")
        _draw_spectra(figure.subplots(), samples)
    return figure


def mask_and_spectra(samples: Sequence[Sample]) -> Figure:
    """Return the mask of the first matrix beside the spectra of all."""
    first = samples[0]
    with styled():
        figure = Figure(figsize=(9.4, 3.9), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[0.75, 1])
        left.imshow(~first.mask.numpy(), cmap="gray", interpolation="nearest")
        left.set_title(f"mask, {len(first.mask)} x {len(first.mask)} at density {first.density:.3g}", fontsize=10)
        left.set(xticks=[], yticks=[])
        left.grid(visible=False)
        _draw_spectra(right, samples)
    return figure


def _draw_spectra(axes: Axes, samples: Sequence[Sample]) -> None:
    for sample in samples:
        # The spectra of the two orthogonal ones coincide: a thin line on a wide one shows both.
        width = 6 if sample.role == "dense" else 1.8
        axes.plot(
            sample.singular_values.numpy(),
            color=light(sample.role),
            linewidth=width,
            label=_LABELS[sample.role],
            zorder=1 if sample.role == "dense" else 2,
        )
    axes.set(xlabel="index", ylabel="singular value", ylim=(0, 1.15))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(samples), borderaxespad=0.2, handlelength=1.4)
