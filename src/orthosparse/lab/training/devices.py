"""Devices, their clock and their arithmetic, and the processes and threads that share the work."""

import gc
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from orthosparse.hardware import on_threads

if TYPE_CHECKING:
    from lightning_fabric import Fabric


STRATEGIES = ("auto", "ddp", "fsdp")
_FABRIC_PRECISION = {"fp32": "32-true", "tf32": "32-true", "bf16": "bf16-mixed"}


def launch(*, device: str = "auto", devices: int = 1, strategy: str = "auto", precision: str = "tf32") -> "Fabric":
    """Return Fabric, launched: on this process alone, on `devices` processes, or on those torchrun has started.

    Under ``torchrun`` and ``fabric run``, which set the number of processes, `devices` is ignored.

    Raises:
        ValueError: an unknown device or strategy, or a GPU on a machine without one.
    """
    from lightning_fabric import Fabric  # slow to import

    if strategy not in STRATEGIES:
        raise ValueError(f"strategy: expected one of {', '.join(STRATEGIES)}; got {strategy!r}")
    kind, chosen = _device(device, devices)
    nodes = 1
    if torch.distributed.is_available() and torch.distributed.is_torchelastic_launched():
        chosen = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // chosen
    processes = nodes * (chosen if isinstance(chosen, int) else len(chosen))
    fabric = Fabric(
        accelerator=kind,
        devices=chosen,
        num_nodes=nodes,
        strategy=_strategy(strategy, processes),
        **_precision(precision),
    )
    if os.environ.get("LT_CLI_USED") != "1":  # `fabric run` has launched it
        fabric.launch()
    return fabric


def is_first_rank() -> bool:
    """Return whether this process is the only one, or the first one of a distributed run."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def leave() -> None:
    """Destroy the process group, if there is one, once every process has reached this call.

    A program that exits while gloo's threads still hold tensors may be aborted (SIGABRT).
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        gc.collect()  # DDP's reducers hold the group, and are in reference cycles
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def device_of(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is a GPU if there is one.

    Raises:
        ValueError: an unknown device, or a GPU on a machine without one.

    Example:
        >>> device_of("cpu")
        device(type='cpu')
    """
    kind, _, index = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and (kind != "cuda" or not index.isdigit())):
        raise ValueError(f"device: expected auto, cpu, cuda or cuda:INDEX; got {name!r}")
    gpus = torch.cuda.device_count()
    if kind == "cuda" and not gpus:
        raise ValueError(f"device: expected cpu, as torch {torch.__version__} sees no CUDA GPU; got {name!r}")
    if int(index or 0) >= max(gpus, 1):
        raise ValueError(f"device: expected cpu or one of the {gpus} GPUs here; got {name!r}")
    return torch.device(("cuda" if gpus else "cpu") if kind == "auto" else name)


def now(device: torch.device) -> float:
    """Return the seconds of a monotonic clock after synchronizing `device`."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter()


def _device(name: str, devices: int) -> tuple[str, int | list[int]]:
    """Return Fabric's accelerator and devices."""
    device = device_of(name)
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise ValueError(f"devices: expected a positive integer; got {devices!r}")
    if device.type == "cuda" and devices > torch.cuda.device_count():
        raise ValueError(f"devices: expected at most the {torch.cuda.device_count()} GPUs here; got {devices}")
    if device.index is not None and devices > 1:
        raise ValueError(f"devices: expected 1 with {name}, which is one device; got {devices}")
    return device.type, devices if device.index is None else [device.index]


def _precision(precision: str) -> dict[str, Any]:
    """Return Fabric's arguments."""
    if precision != "fp64":
        return {"precision": _FABRIC_PRECISION[precision]}
    from lightning_fabric.plugins.precision import DoublePrecision

    class Double(DoublePrecision):
        """Float64 throughout: Fabric's own plugin converts outputs to float32."""

        def convert_output(self, data: Any) -> Any:
            return data

    return {"plugins": [Double()]}


def _strategy(strategy: str, processes: int) -> Any:
    if strategy == "fsdp":
        from lightning_fabric.strategies.model_parallel import ModelParallelStrategy

        return ModelParallelStrategy(parallelize_fn=_shard, data_parallel_size=processes, tensor_parallel_size=1)
    return "ddp" if strategy == "ddp" or processes > 1 else "auto"


def _shard(model: nn.Module, mesh: Any) -> nn.Module:
    """Shard the blocks of a model, then what is left of it."""
    from torch.distributed.fsdp import fully_shard

    shard = partial(fully_shard, mesh=mesh["data_parallel"])
    for module in list(model.modules()):
        if isinstance(module, nn.ModuleList | nn.Sequential):
            for block in module.children():
                if len(list(block.parameters())) > 1:
                    shard(block)
    shard(model)
    return model


@contextmanager
def arithmetic(precision: str, *, deterministic: bool = False) -> Iterator[None]:
    """Set how float32 products are computed on a GPU inside the block, and restore it afterwards.

    Args:
        deterministic: use cuDNN's deterministic algorithms instead of benchmarking for the fastest.
    """
    cudnn, matmul, conv = torch.backends.cudnn, torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = matmul.fp32_precision, conv.fp32_precision, cudnn.benchmark, cudnn.deterministic
    matmul.fp32_precision = conv.fp32_precision = "ieee" if precision in ("fp32", "fp64") else "tf32"
    cudnn.benchmark, cudnn.deterministic = not deterministic, deterministic
    try:
        yield
    finally:
        matmul.fp32_precision, conv.fp32_precision, cudnn.benchmark, cudnn.deterministic = before


# Weights times batch. A 7 x 100 network at batch 128 (1.7e7) takes about a second an epoch of MNIST on one thread; on
# two it gains little on idle cores, and takes seven times as long where others use them too.
_SMALL = 2**25


def threads_for(weights: int, batch: int) -> AbstractContextManager[None]:
    """Compute steps of so many weights on one thread inside the block if they are small, else on as many as before."""
    return on_threads(1) if weights * batch < _SMALL else nullcontext()
