"""Where work takes place: the device, its clock and arithmetic, and the processes and threads that share the work."""

import gc
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from lightning_fabric import Fabric


STRATEGIES = ("auto", "ddp", "fsdp")
_FABRIC_PRECISION = {"fp32": "32-true", "tf32": "32-true", "bf16": "bf16-mixed"}


def launch(*, device: str = "auto", devices: int = 1, strategy: str = "auto", precision: str = "tf32") -> "Fabric":
    """Return Fabric, launched: on this process alone, on `devices` processes, or on those torchrun has started.

    Under ``torchrun`` and ``fabric run`` the number of processes is theirs and `devices` is not read.

    Raises:
        ValueError: an unknown device or strategy, or a GPU where there is none.
    """
    from lightning_fabric import Fabric  # slow to import: not for those who only read about runs

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
    """Return whether this process is alone, or the first of a run that was launched."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def leave() -> None:
    """Leave the group of processes, if there is one, once every process has got this far.

    A program that ends while gloo's threads still hold tensors can be ended by SIGABRT instead.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        gc.collect()  # DDP's reducers hold the group, and sit in cycles
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def device_of(name: str) -> torch.device:
    """Return the device that a name stands for; ``auto`` is a GPU where there is one.

    Raises:
        ValueError: no such device, or a GPU where there is none.

    Example:
        >>> device_of("cpu")
        device(type='cpu')
    """
    kind, _, index = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and (kind != "cuda" or not index.isdigit())):
        raise ValueError(f"device: expected auto, cpu, cuda or cuda:INDEX; got {name!r}")
    found = torch.cuda.device_count()
    if kind == "cuda" and not found:
        raise ValueError(f"device: expected cpu, as torch {torch.__version__} sees no CUDA GPU; got {name!r}")
    if int(index or 0) >= max(found, 1):
        raise ValueError(f"device: expected cpu or one of the {found} GPUs here; got {name!r}")
    return torch.device(("cuda" if found else "cpu") if kind == "auto" else name)


def now(device: torch.device) -> float:
    """Return the seconds of a clock that only goes forward, after `device` has caught up."""
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
    return device.type, devices if device.index is None else [device.index]


def _precision(precision: str) -> dict[str, Any]:
    """Return Fabric's arguments."""
    if precision != "fp64":
        return {"precision": _FABRIC_PRECISION[precision]}
    from lightning_fabric.plugins.precision import DoublePrecision

    class Double(DoublePrecision):
        """Float64 throughout: Fabric's own would hand on what a network gives in float32."""

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
        deterministic: take cuDNN's repeatable algorithms instead of trying out the fastest.
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
    """Compute a step of so many weights on one thread inside the block if it is small, else on as many as before."""
    return one_thread() if weights * batch < _SMALL else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread inside the block: small products lose more by waiting for each other than they gain.

    Example:
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
