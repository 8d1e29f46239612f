"""Time stacks of deep networks: perceptrons and convolutional networks of 1000 layers, residual networks, VGG-16.

python benchmarks/deep.py [--out rows.jsonl] [--parts start mlp cnn depth residual vgg] [--device auto]

Each measurement is printed, and appended to --out as a JSON row. The parts: the sparse starts of the networks of 1000
layers, their training steps (mlp, cnn) and how these depend on the depth, and the steps of residual networks and VGG-16
in a stack. Single networks are timed in the training loop, in a CUDA graph and channels last.

Targets on one H200: a step of 45 perceptrons in at most 46 ms, a step of the convolutional network 1.6 times as fast as
in the loop in bf16, time linear in the depth, and the starts of all layers by EOI in 0.5 s (perceptron) and 2 s
(convolutional). On a CPU the sizes are small, and only show that everything runs.
"""

import argparse
import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch

from orthosparse import sparsify
from orthosparse.lab.data import Augmentation, Dataset, Normalisation, Split
from orthosparse.lab.provenance import provenance
from orthosparse.lab.seeds import fenced
from orthosparse.lab.training import Recipe, Run, State, assemble, launch, recipe_for
from orthosparse.lab.training.assembly import started
from orthosparse.lab.training.devices import arithmetic
from orthosparse.lab.training.stacked import circular_launches, cuda_launches, cuda_library
from orthosparse.lab.training.stacked.assembly import stack_of
from orthosparse.lab.training.starts import Start, start_of
from orthosparse.lab.training.step import Stepper

FIXED = ("resnet32", "vgg16c")  # models without options for their size
OURS, TRITON, TORCH = "our kernels", "our kernels, without nvcc", "torch's operations"
EPOCHS, BATCHES = 100, {"mlp1000": 422, "cnn1000": 352, "resnet32": 352, "vgg16c": 352}


@dataclass(frozen=True)
class Size:
    """The sizes that are timed.

    Attributes:
        perceptrons, residual, vgg: numbers of networks in a stack.
        depths: of the part depth; `depth` is that of all other parts, by model.
        steps: at least so many batches are in an epoch; timed in blocks of a quarter of them.
        iterations: of AI's descent.
    """

    perceptrons: tuple[int, ...]
    depths: tuple[int, ...]
    depth: dict[str, int]
    width: int
    batch: int
    steps: int
    iterations: int
    residual: tuple[int, ...]
    vgg: tuple[int, ...]


GPU = Size(  # the paper's networks
    perceptrons=(1, 15, 45, 63),
    depths=(100, 300, 1000, 3000),
    depth={"mlp1000": 1000, "cnn1000": 1000},
    width=128,
    batch=128,
    steps=20,
    iterations=1000,
    residual=(1, 4, 20),
    vgg=(1, 4, 10),
)
CPU = Size(
    perceptrons=(1, 4),
    depths=(20, 40, 80),
    depth={"mlp1000": 40, "cnn1000": 12},
    width=16,
    batch=8,
    steps=3,
    iterations=10,
    residual=(1, 2),
    vgg=(1,),
)


def noise_dataset(model: str, size: Size, device: torch.device) -> Dataset:
    """Return noise in the shape of MNIST or CIFAR-10, which takes as long as real images."""
    generator = torch.Generator().manual_seed(0)
    channels, side = (1, 28) if model == "mlp1000" else (3, 32)

    def split(count: int) -> Split:
        pixels = torch.randint(256, (count, channels, side, side), generator=generator, dtype=torch.uint8)
        labels = torch.randint(10, (count,), generator=generator)
        return Split(pixels, labels, Normalisation((0.5,) * channels, (0.3,) * channels))

    data = Dataset(model, split((size.steps + 20) * size.batch), None, split(size.batch), 10)
    crops = Augmentation(pad=4, flip=True) if channels == 3 else None
    return replace(data, augmentation=crops).to(device)


def run_of(model: str, size: Size, depth: int | None = None, scheme: str = "eoi", **changes: Any) -> Run:
    """Return the description of a run; `changes` are fields of the recipe."""
    recipe: Recipe = replace(recipe_for(model), batch=size.batch, **changes)
    model_options = {} if model in FIXED else {"depth": depth or size.depth[model], "width": size.width}
    options = {"iterations": size.iterations} if scheme == "ai" else {}
    data = "mnist" if model == "mlp1000" else "cifar10"
    shape = {"model_options": model_options, "validation": False}
    return Run(model, data, recipe, density=0.125, scheme=scheme, options=options, **shape)


def milliseconds(step: Callable[[], None], size: Size, device: torch.device) -> float:
    """Return the median time of a step over five blocks, after one that warms up and captures the graph."""
    blocks = []
    for block in range(6):
        wait(device)
        begin = perf_counter()
        for _ in range(size.steps // 4 or 1):
            step()
        wait(device)
        if block:
            blocks.append(1e3 * (perf_counter() - begin) / (size.steps // 4 or 1))
    return median(blocks)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def gigabytes(device: torch.device) -> float | None:
    return round(torch.cuda.max_memory_reserved(device) / 2**30, 2) if device.type == "cuda" else None


def free_memory(device: torch.device) -> None:
    """Free the memory of earlier measurements, and reset the peak."""
    if device.type == "cuda":
        gc.collect()  # graphs are in reference cycles
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def start_for(run: Run, data: Dataset, device: torch.device) -> Start:
    """Return an EOI start whose inner layers repeat those of a shallow network, which is quick to make."""
    if run.model in FIXED:
        return start_of(run, 1, data, device, None)
    depth, head = run.model_options["depth"], 1 if run.model == "mlp1000" else 3
    small = start_of(replace(run, model_options={**run.model_options, "depth": 12}), 1, data, device, None)
    shallow, deep = names_of(run.model, 12), names_of(run.model, depth)
    inner = shallow[head:-1]
    origins = [*shallow[:head], *(inner[i % len(inner)] for i in range(len(deep) - head - 1)), shallow[-1]]
    parts = ("weight", "bias", "weight_mask")
    state = {
        f"{name}.{part}": small.state[f"{old}.{part}"]
        for name, old in zip(deep, origins, strict=True)
        for part in parts
    }
    return replace(small, state=state)


def names_of(model: str, depth: int) -> list[str]:
    if model == "mlp1000":
        return [f"fc{index}" for index in range(1, depth + 1)]
    return [*(f"conv{index}" for index in range(1, depth - 2)), "fc"]


def stack_step(
    run: Run, networks: int, size: Size, device: torch.device, *, fused: bool | None = None
) -> dict[str, Any]:
    """Return the times to build a stack of so many networks and of a step, and the peak memory."""
    free_memory(device)
    fabric = launch(device=str(device), precision=run.recipe.precision)
    data = noise_dataset(run.model, size, device)
    start = start_for(run, data, device)
    begin = perf_counter()
    state = stack_of([(run, seed) for seed in range(networks)], [start] * networks, data, fabric, fused=fused)
    built = perf_counter() - begin
    return {**timed(state, size, device), "alive": int(state.records.alive.sum()), "build_s": built}


def loop_step(run: Run, size: Size, device: torch.device, *, graph: bool) -> dict[str, Any]:
    """Return the time of a step of a single network in the training loop, with the same weights and no masks."""
    free_memory(device)
    fabric = launch(device=str(device), precision=run.recipe.precision)
    data = noise_dataset(run.model, size, device)
    state_dict = start_for(run, data, device).state
    start = {name: tensor.to(device) for name, tensor in state_dict.items() if not name.endswith("_mask")}
    state = assemble(run, 1, fabric, data=data, channels_last=device.type == "cuda", saved=start)
    return timed(state, size, device, graph=graph)


def timed(state: State, size: Size, device: torch.device, *, graph: bool | None = None) -> dict[str, Any]:
    """Return the time of a step, and the peak memory."""
    state.set_rate()
    stepper, batches = Stepper(state, graph=graph), endless_batches(state.loader)

    def step() -> None:
        state.step = 0  # an epoch never ends
        stepper(*next(batches))

    fence = fenced(0, [device] if device.type == "cuda" else [])
    with fence, arithmetic(state.recipe.precision):
        step_ms = milliseconds(step, size, device)
    return {"ms": step_ms, "peak_gb": gigabytes(device)}


def endless_batches(loader: Any) -> Iterator[Any]:
    """Yield batches without end; gathering them is part of a step, as in training."""
    while True:
        yield from loader.epoch(0)


def starts(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    """Time the sparse start of all layers, from a dense network to one with masks."""
    for model in ("mlp1000", "cnn1000"):
        data = noise_dataset(model, size, device)
        for scheme in ("base", "eoi", "ai"):
            run = run_of(model, size, scheme=scheme)
            network = started(replace(run, density=1.0), 1, data, device)
            options: dict[str, Any] = {"iterations": size.iterations, "device": device} if scheme == "ai" else {}
            sigmas: dict[str, Any] = {"gain": run.recipe.gain, "bias_std": run.recipe.bias_std}
            generator = torch.Generator().manual_seed(1)
            wait(device)
            begin = perf_counter()
            sparsify(network, 0.125, scheme=scheme, generator=generator, **sigmas, **options)
            wait(device)
            yield {"part": "start", "model": model, "scheme": scheme, "s": perf_counter() - begin}


def perceptrons(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    for fused in (True, False) if device.type == "cuda" else (False,):
        for networks in size.perceptrons:
            run = run_of("mlp1000", size)
            row = stack_step(run, networks, size, device, fused=fused)
            minutes = row["ms"] * EPOCHS * BATCHES["mlp1000"] / 6e4
            yield {"part": "mlp", "networks": networks, "fused": fused, **row, "minutes": minutes}


def convolutional(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    cuda = device.type == "cuda"
    run = run_of("cnn1000", size, precision="bf16")
    loop = loop_step(run, size, device, graph=cuda)
    yield {"part": "cnn", "method": loop_name(device), "precision": "bf16", "networks": 1, **loop, "speedup": 1.0}
    for precision in ("bf16", "tf32"):
        run = run_of("cnn1000", size, precision=precision)
        about = {"part": "cnn", "precision": precision}
        for method in methods_for(device):
            row = {"method": method, "networks": 1, **stack_step_by(method, run, 1, size, device)}
            yield {**about, **row, "speedup": loop["ms"] / row["ms"], "epoch_s": row["ms"] * BATCHES["cnn1000"] / 1e3}
    run = run_of("cnn1000", size, precision="bf16")
    row = {"method": "default", "precision": "bf16", "networks": 8, **stack_step(run, 8, size, device)}
    yield {"part": "cnn", **row, "speedup": 8 * loop["ms"] / row["ms"]}


def depths(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    for model, networks in (("mlp1000", 6), ("cnn1000", 1)):
        for depth in size.depths:
            run = run_of(model, size, depth, precision="bf16" if model == "cnn1000" else "tf32")
            row = stack_step(run, networks, size, device)
            about = {"part": "depth", "model": model, "networks": networks, "depth": depth}
            yield {**about, **row, "us_per_layer": 1e3 * row["ms"] / depth}


def residual(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    yield from normalised("residual", "resnet32", size.residual, size, device)


def vgg(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    yield from normalised("vgg", "vgg16c", size.vgg, size, device)


def normalised(
    part: str, model: str, counts: tuple[int, ...], size: Size, device: torch.device
) -> Iterator[dict[str, Any]]:
    """Time networks with batch normalisation, single and in stacks of `counts` networks."""
    for precision in ("bf16", "tf32"):
        run = run_of(model, size, precision=precision)
        loop = loop_step(run, size, device, graph=device.type == "cuda")
        about = {"part": part, "model": model, "precision": precision}
        epoch_s = BATCHES[model] / 1e3  # of one ms a step
        first = {"method": loop_name(device), "networks": 1, **loop, "speedup": 1.0}
        yield {**about, **first, "epoch_s_each": loop["ms"] * epoch_s}
        for method in methods_for(device):
            slow = method == TORCH and device.type == "cuda"
            for networks in counts[:2] if slow else counts:
                row = stack_step_by(method, run, networks, size, device)
                speedup, each = networks * loop["ms"] / row["ms"], row["ms"] * epoch_s / networks
                measured = {"method": method, "networks": networks, **row}
                yield {**about, **measured, "speedup": speedup, "epoch_s_each": each}


def loop_name(device: torch.device) -> str:
    return "loop, channels last, graph" if device.type == "cuda" else "loop"


def methods_for(device: torch.device) -> tuple[str, ...]:
    return (OURS, TRITON, TORCH) if device.type == "cuda" else (TORCH,)


def stack_step_by(method: str, run: Run, networks: int, size: Size, device: torch.device) -> dict[str, Any]:
    with without_nvcc() if method == TRITON else nullcontext():
        return stack_step(run, networks, size, device, fused=method != TORCH)


@contextmanager
def without_nvcc() -> Iterator[None]:
    """Use kernels in Triton alone, as on a machine without nvcc."""
    caches = (cuda_launches.library, circular_launches.kernels_for)
    try:
        with patch.object(cuda_library, "_nvcc", return_value=None):
            for cached in caches:
                cached.cache_clear()
            yield
    finally:
        for cached in caches:
            cached.cache_clear()


PARTS = {
    "start": starts,
    "mlp": perceptrons,
    "cnn": convolutional,
    "depth": depths,
    "residual": residual,
    "vgg": vgg,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, help="a file for the rows")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    device = launch(device=args.device).device
    size = GPU if device.type == "cuda" else CPU
    if device.type == "cpu":
        torch.set_num_threads(1)  # faster for networks of this size
    about = provenance(device)
    print(f"{about['device']}, torch {torch.__version__}, batch {size.batch}, width {size.width}", flush=True)
    for name in args.parts:
        for row in PARTS[name](size, device):
            shown = ((key, f"{value:.4g}" if isinstance(value, float) else value) for key, value in row.items())
            print("  ".join(f"{key} {value}" for key, value in shown), flush=True)
            if args.out is not None:
                args.out.parent.mkdir(parents=True, exist_ok=True)
                with args.out.open("a") as file:
                    file.write(json.dumps({**row, **about}) + "\n")


if __name__ == "__main__":
    main()
