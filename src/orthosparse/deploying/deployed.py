"""deploy: return the fastest measured form of a trained sparse network for inference."""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.checks import check_at_least, check_flag, check_number
from orthosparse.deploying.choosing import choose
from orthosparse.deploying.copies import arguments_of, inference_copy
from orthosparse.deploying.folding import LAYERS
from orthosparse.deploying.forms import DENSE
from orthosparse.deploying.modules import Entries
from orthosparse.deploying.networks import Networks
from orthosparse.deploying.table import DeployedLayer, DeployTable
from orthosparse.hardware import on_threads
from orthosparse.modules.compact_module import Compact
from orthosparse.progress import Progress, reporter

_TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_ORDER = ("eager", "channels-last", "compiled", "shrunk dense", "deployed", "deployed compiled")


def deploy(
    model: nn.Module,
    example: Any,
    *,
    device: torch.device | str | None = None,
    threads: int | None = None,
    tolerance: float | None = None,
    compile: bool = True,  # noqa: A002
    progress: Progress = False,
) -> tuple[nn.Module, DeployTable]:
    """Return a network for inference that computes what `model` does in eval mode, as fast as this machine can.

    Batch norms are folded into the neighbouring layers, and dead units are removed, where that is exact. Then each
    layer is timed in every form that it can have (dense in both memory formats, single entries, blocks, 2:4), on the
    input that it gets. It keeps its dense form unless another one takes at most 0.9 times as long. Finally the whole
    network is timed, compiled and not. If a dense form of the whole network is faster, that is returned.

    Args:
        model: a masked, compact or dense model with zeros in its weights; it is not changed.
        example: what the model will be called with: a tensor, a tuple of arguments, or a dict of keyword arguments. Its
            shapes matter: the fastest form for one sample may not be the fastest for sixty-four. Arguments that it
            leaves out keep their defaults: the network that is returned may not take them.
        device: the device that the network will run on; by default, that of its parameters.
        threads: number of CPU threads that it will run on; by default, the number that torch uses now.
        tolerance: how much outputs may differ from those of `model`, as a fraction of the largest output; by default
            1e-10 in float64, 1e-4 in float32, 1e-2 in float16 and 5e-2 in bfloat16. Forms that differ more are
            rejected.
        compile: whether to try ``torch.compile`` too, which takes a minute or more for a large network.
        progress: as in `orthosparse.sparsify`; counts layers, and forms of the whole network.

    Returns:
        The network, and a table of its layers: form, times, ratio to the dense form, and why a form was not used.

    Raises:
        TypeError: `model` is not a module, or `example` has the wrong type.
        ValueError: the model cannot take `example`, another argument is out of range, weights are sharded or on the
            meta device, or masks are those of torch.nn.utils.prune.

    Example:
        >>> import orthosparse
        >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
        >>> _ = orthosparse.sparsify(model, 0.1, generator=torch.Generator().manual_seed(0))
        >>> deployed, table = deploy(model, torch.ones(1, 64), threads=1, compile=False)
        >>> [row.layer for row in table.rows], table.error < 1e-4
        (['0', '2'], True)
    """
    check_flag(compile, "compile")
    if threads is not None:
        check_at_least(threads, 1, "threads")
    target = _device(device)
    plain, arguments = inference_copy(model, target), arguments_of(example, target)
    limit = _tolerance(plain, tolerance)
    report = reporter(progress)
    with on_threads(threads):
        networks = Networks(plain, arguments, limit)
        networks.add_channels_last()
        networks.add_shrunk()
        report("network", 1, 4)
        best = deepcopy(networks.base)
        rows = choose(best, arguments, limit, report)
        networks.add("deployed", best)
        if compile:
            networks.add_compiled("compiled", plain)
            report("network", 2, 4)
            networks.add_compiled("deployed compiled", best)
        report("network", 3, 4)
        times = networks.times()
        report("network", 4, 4)
    chosen = min(times, key=times.__getitem__)
    deployed = networks.by_name[chosen]
    return deployed, DeployTable(
        rows=rows if chosen.startswith("deployed") else tuple(map(_dense, rows)),
        latency={name: times[name] for name in _ORDER if name in times},
        chosen=chosen,
        removed=networks.removed.get(chosen.removesuffix(" compiled"), {}),
        live=sum(int(tensor.count_nonzero()) for tensor in _weights(deployed)),
        weights=sum(tensor.numel() for tensor in _weights(plain)),
        bytes={"given": _bytes(plain), "deployed": _bytes(deployed)},
        error=networks.error(deployed),
        notes=tuple(networks.notes),
    )


def _device(device: torch.device | str | None) -> torch.device | None:
    if device is None or isinstance(device, torch.device):
        return device
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device: expected a device of torch's; got {device!r} ({error})") from None


def _tolerance(model: nn.Module, tolerance: float | None) -> float:
    if tolerance is not None:
        return check_number("tolerance", tolerance, least=0)
    types = {parameter.dtype for parameter in model.parameters()}
    return max((_TOLERANCES[dtype] for dtype in types if dtype in _TOLERANCES), default=0.0)


def _dense(row: DeployedLayer) -> DeployedLayer:
    """Return the row of a layer that stays dense because the whole network is faster that way."""
    if row.form.startswith(DENSE):
        return row
    return replace(row, form=DENSE, ratio=1.0, note=f"{row.form} is faster, but not in the whole network")


def _weights(model: nn.Module) -> Iterable[Tensor]:
    """Yield the weights of the layers; those of compact layers are the active entries."""
    for module in model.modules():
        if isinstance(module, Compact | Entries):
            yield module.values
        elif type(module) in LAYERS:
            yield module.weight  # type: ignore[misc]


def _bytes(model: nn.Module) -> int:
    tensors = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
