"""The paper, item by item: every table and figure is one file that lists its experiments and renders their rows.

`aligned` and `strides` are studies of ours beside them.

An item has ``TITLE``, ``SEEDS`` (the paper's, or fewer where nothing is averaged), ``experiments(*, smoke=False)`` and
``render(rows, *, smoke=False) -> Rendered``; `smoke` is a tiny version that runs in seconds without data on disk.
"""

from types import ModuleType

from orthosparse.lab.paper import (
    activations,
    aligned,
    angles,
    contemporary,
    contemporary_5,
    conv_details,
    deep_networks,
    density_sweep,
    dynamic,
    efficiency,
    expected_density,
    imagenet,
    init_runtime,
    loss_curves,
    mask_pictures,
    parameter_counts,
    ranks,
    singular_values,
    strides,
)

__all__ = ["ITEMS"]

ITEMS: dict[str, ModuleType] = {
    "singular_values": singular_values,
    "loss_curves": loss_curves,
    "deep_networks": deep_networks,
    "contemporary": contemporary,
    "contemporary_5": contemporary_5,
    "activations": activations,
    "ranks": ranks,
    "efficiency": efficiency,
    "expected_density": expected_density,
    "angles": angles,
    "mask_pictures": mask_pictures,
    "dynamic": dynamic,
    "density_sweep": density_sweep,
    "init_runtime": init_runtime,
    "parameter_counts": parameter_counts,
    "imagenet": imagenet,
    "conv_details": conv_details,
    "aligned": aligned,
    "strides": strides,
}
