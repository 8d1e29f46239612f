"""The paper, item by item: every table and figure is one file that lists its experiments and renders their rows.

`aligned`, `aligned_200`, `strides`, `depthwise` and `efficientnet` are studies of ours beside them.

An item has ``TITLE``, ``SEEDS`` (the paper's, or fewer where nothing is averaged), ``experiments(*, smoke=False)`` and
``render(rows, *, smoke=False) -> Rendered``; `smoke` is a tiny version that runs in seconds without data on disk.
"""

from types import ModuleType

from orthosparse.lazy import LazyTable

__all__ = ["ITEMS"]

ITEMS: LazyTable[ModuleType] = LazyTable(
    {
        "singular_values": "orthosparse.lab.paper.singular_values",
        "loss_curves": "orthosparse.lab.paper.loss_curves",
        "deep_networks": "orthosparse.lab.paper.deep_networks",
        "contemporary": "orthosparse.lab.paper.contemporary",
        "contemporary_5": "orthosparse.lab.paper.contemporary_5",
        "activations": "orthosparse.lab.paper.activations",
        "ranks": "orthosparse.lab.paper.ranks",
        "efficiency": "orthosparse.lab.paper.efficiency",
        "expected_density": "orthosparse.lab.paper.expected_density",
        "angles": "orthosparse.lab.paper.angles",
        "mask_pictures": "orthosparse.lab.paper.mask_pictures",
        "dynamic": "orthosparse.lab.paper.dynamic",
        "density_sweep": "orthosparse.lab.paper.density_sweep",
        "init_runtime": "orthosparse.lab.paper.init_runtime",
        "parameter_counts": "orthosparse.lab.paper.parameter_counts",
        "imagenet": "orthosparse.lab.paper.imagenet",
        "conv_details": "orthosparse.lab.paper.conv_details",
        "aligned": "orthosparse.lab.paper.aligned",
        "aligned_200": "orthosparse.lab.paper.aligned_200",
        "strides": "orthosparse.lab.paper.strides",
        "depthwise": "orthosparse.lab.paper.depthwise",
        "efficientnet": "orthosparse.lab.paper.efficientnet",
    }
)
