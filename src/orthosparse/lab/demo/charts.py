"""The charts of the demo that are its own: the sampler's matrix and spectra."""

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas

from orthosparse.lab.demo.sampler import Sample
from orthosparse.lab.rendering.charts import STYLE, draw_on
from orthosparse.lab.rendering.contents import Figure, Series

_LABELS = {"eoi": "sparse, by rotations", "dense": "dense, by QR", "base": "masked at random"}


def spectra(samples: Sequence[Sample]) -> Figure:
    """Return the singular values of all matrices, the largest first."""
    # The spectra of the two orthogonal ones coincide: a thin line on a wide one shows both.
    series = [
        Series(
            _LABELS[sample.role],
            range(1, len(sample.singular_values) + 1),
            sample.singular_values.tolist(),
            sample.role,
            width=6 if sample.role == "dense" else 1.8,
        )
        for sample in sorted(samples, key=lambda sample: sample.role != "dense")
    ]
    return Figure("All singular values", "index", "singular value", series, bottom=0, caption="The largest first.")


def mask_and_spectra(samples: Sequence[Sample]) -> Canvas:
    """Return the mask of the first matrix beside the spectra of all."""
    first = samples[0]
    with rc_context(STYLE):
        canvas = Canvas(figsize=(9.4, 3.9), layout="constrained")
        left, right = canvas.subplots(1, 2, width_ratios=[0.75, 1])
        left.imshow(~first.mask.numpy(), cmap="gray", interpolation="nearest")
        left.set_title(f"mask, {len(first.mask)} x {len(first.mask)} at density {first.density:.3g}", fontsize=10)
        left.set(xticks=[], yticks=[])
        left.grid(visible=False)
        draw_on(right, spectra(samples))
        right.legend(loc="lower left")
    return canvas
