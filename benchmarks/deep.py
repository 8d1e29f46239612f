"""Time networks of 1000 layers: many perceptrons at once, one convolutional network, depth, memory, and their starts.

python benchmarks/deep.py [--out rows.jsonl] [--parts start mlp cnn depth residual vgg] [--device auto]

Every part prints its lines as they come, a JSON row each to --out. On one H200 the targets are: 45 perceptrons in 46 ms
a step at most, a step of the convolutional network 1.6 times as fast as the graphed channels-last bf16 loop, time
linear in the depth, and starts of all layers by EOI in 0.5 s (perceptron) and 2 s (convolutional). The last parts time
residual networks and VGG-16 that train in a stack against the graphed channels-last loop of one. On a CPU the sizes are
small ones: only that everything runs can be seen there.
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

PARTS = ("start", "mlp", "cnn", "depth", "residual", "vgg")
WHOLE = ("resnet32", "vgg16c")  # models of one size
WAYS = ("our kernels", "our kernels, without nvcc", "torch's operations")
EPOCHS, BATCHES = 100, {"mlp1000": 422, "cnn1000": 352, "resnet32": 352, "vgg16c": 352}


@dataclass(frozen=True)
class Size:
    """What is timed: on a GPU the paper's networks, on a CPU small ones."""

    members: tuple[int, ...]
    depths: tuple[int, ...]
    depth: dict[str, int]
    width: int
    batch: int
    steps: int
    iterations: int
    residual: tuple[int, ...]
    vgg: tuple[int, ...]


GPU = Size(
    (1, 15, 45, 63),
    (100, 300, 1000, 3000),
    {"mlp1000": 1000, "cnn1000": 1000},
    128,
    128,
    20,
    1000,
    (1, 4, 20),
    (1, 4, 10),
)
CPU = Size((1, 4), (20, 40, 80), {"mlp1000": 40, "cnn1000": 12}, 16, 8, 3, 10, (1, 2), (1,))


def made_up(model: str, size: Size, device: torch.device) -> Dataset:
    """Return noise in the shape of MNIST or CIFAR-10: it takes as long as pictures do."""
    generator = torch.Generator().manual_seed(0)
    channels, side = (1, 28) if model == "mlp1000" else (3, 32)

    def split(count: int) -> Split:
        pixels = torch.randint(256, (count, channels, side, side), generator=generator, dtype=torch.uint8)
        labels = torch.randint(10, (count,), generator=generator)
        return Split(pixels, labels, Normalisation((0.5,) * channels, (0.3,) * channels))

    data = Dataset(model, split((size.steps + 20) * size.batch), None, split(size.batch), 10)
    crops = Augmentation(pad=4, flip=True) if channels == 3 else None
    return replace(data, augmentation=crops).to(device)


def config_of(model: str, size: Size, depth: int | None = None, scheme: str = "eoi", **recipe: Any) -> Run:
    chosen: Recipe = replace(recipe_for(model), batch=size.batch, **recipe)
    options = {} if model in WHOLE else {"depth": depth or size.depth[model], "width": size.width}
    own = {"iterations": size.iterations} if scheme == "ai" else {}
    data = "mnist" if model == "mlp1000" else "cifar10"
    shape = {"model_options": options, "validation": False}
    return Run(model, data, chosen, density=0.125, scheme=scheme, options=own, **shape)


def milliseconds(step: Callable[[], None], size: Size, device: torch.device) -> float:
    """Return the median of five blocks of steps, after some that warm up and capture the graph."""
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


def fresh(device: torch.device) -> None:
    """Give back the memory of what was timed before."""
    if device.type == "cuda":
        gc.collect()  # graphs and what they refer to hold on to each other
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def start_for(config: Run, data: Dataset, device: torch.device) -> Start:
    """Return an EOI start whose inner layers repeat those of a shallow network: quick to make, and as good to time."""
    if config.model in WHOLE:
        return start_of(config, 1, data, device, None)
    depth, head = config.model_options["depth"], 1 if config.model == "mlp1000" else 3
    small = start_of(replace(config, model_options={**config.model_options, "depth": 12}), 1, data, device, None)
    shallow, deep = names_of(config.model, 12), names_of(config.model, depth)
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
    config: Run, members: int, size: Size, device: torch.device, *, fused: bool | None = None
) -> dict[str, Any]:
    """Return the times to build a stack of so many networks from one start and of a step, and the peak of memory."""
    fresh(device)
    fabric = launch(device=str(device), precision=config.recipe.precision)
    data = made_up(config.model, size, device)
    start = start_for(config, data, device)
    begin = perf_counter()
    state = stack_of([(config, seed) for seed in range(members)], [start] * members, data, fabric, fused=fused)
    built = perf_counter() - begin
    return {**timed(state, size, device), "alive": int(state.records.alive.sum()), "build_s": built}


def loop_step(config: Run, size: Size, device: torch.device, *, graph: bool) -> dict[str, Any]:
    """Return the time of a step of a single run, channels last, of the same weights without masks."""
    fresh(device)
    fabric = launch(device=str(device), precision=config.recipe.precision)
    data = made_up(config.model, size, device)
    found = start_for(config, data, device).state
    start = {name: tensor.to(device) for name, tensor in found.items() if not name.endswith("_mask")}
    state = assemble(config, 1, fabric, data=data, channels_last=device.type == "cuda", saved=start)
    return timed(state, size, device, graph=graph)


def timed(state: State, size: Size, device: torch.device, *, graph: bool | None = None) -> dict[str, Any]:
    """Return the time of a step, and the memory at its peak."""
    state.set_rate()
    stepper, batches = Stepper(state, graph=graph), around(state.loader)

    def step() -> None:
        state.step = 0  # as many as are wanted, of one epoch
        stepper(*next(batches))

    fence = fenced(0, [device] if device.type == "cuda" else [])
    with fence, arithmetic(state.recipe.precision):
        taken = milliseconds(step, size, device)
    return {"ms": taken, "peak_gb": gigabytes(device)}


def around(source: Any) -> Iterator[Any]:
    """Yield whole batches for ever: their gather is part of a step, as in training."""
    while True:
        yield from source.epoch(0)


def starts(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    """Time the sparse start of all layers: from a dense network to one with masks."""
    for model in ("mlp1000", "cnn1000"):
        data = made_up(model, size, device)
        for scheme in ("base", "eoi", "ai"):
            config = config_of(model, size, scheme=scheme)
            network = started(replace(config, density=1.0), 1, data, device)
            own: dict[str, Any] = {"iterations": size.iterations, "device": device} if scheme == "ai" else {}
            sigmas: dict[str, Any] = {"gain": config.recipe.gain, "bias_std": config.recipe.bias_std}
            generator = torch.Generator().manual_seed(1)
            wait(device)
            begin = perf_counter()
            sparsify(network, 0.125, scheme=scheme, generator=generator, **sigmas, **own)
            wait(device)
            yield {"part": "start", "model": model, "scheme": scheme, "s": perf_counter() - begin}


def perceptrons(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    for fused in (True, False) if device.type == "cuda" else (False,):
        for members in size.members:
            config = config_of("mlp1000", size)
            row = stack_step(config, members, size, device, fused=fused)
            hours = row["ms"] * EPOCHS * BATCHES["mlp1000"] / 3.6e6
            yield {"part": "mlp", "members": members, "fused": fused, **row, "minutes": 60 * hours}


def convolutional(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    cuda = device.type == "cuda"
    config = config_of("cnn1000", size, precision="bf16")
    plain = loop_step(config, size, device, graph=cuda)
    yield {"part": "cnn", "way": "loop, channels last, bf16" + ", graph" * cuda, **plain, "faster": 1.0}
    for precision in ("bf16", "tf32"):
        for way in WAYS if cuda else WAYS[-1:]:
            config = config_of("cnn1000", size, precision=precision)
            with without_nvcc() if way.endswith("without nvcc") else nullcontext():
                row = stack_step(config, 1, size, device, fused=way != "torch's operations")
            epoch = row["ms"] * BATCHES["cnn1000"] / 1e3
            yield {
                "part": "cnn",
                "way": f"{way}, {precision}",
                **row,
                "faster": plain["ms"] / row["ms"],
                "epoch_s": epoch,
            }
    config = config_of("cnn1000", size, precision="bf16")
    row = stack_step(config, 8, size, device)
    yield {"part": "cnn", "way": "8 networks, bf16", **row, "faster": 8 * plain["ms"] / row["ms"]}


def depths(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    for model, members in (("mlp1000", 6), ("cnn1000", 1)):
        for depth in size.depths:
            config = config_of(model, size, depth, precision="bf16" if model == "cnn1000" else "tf32")
            row = stack_step(config, members, size, device)
            about = {"part": "depth", "model": model, "members": members, "depth": depth}
            yield {**about, **row, "us_per_layer": 1e3 * row["ms"] / depth}


def residual(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    yield from normalised("residual", "resnet32", size.residual, size, device)


def vgg(size: Size, device: torch.device) -> Iterator[dict[str, Any]]:
    yield from normalised("vgg", "vgg16c", size.vgg, size, device)


def normalised(
    part: str, model: str, counts: tuple[int, ...], size: Size, device: torch.device
) -> Iterator[dict[str, Any]]:
    """Time networks with batch normalisation, in a stack and alone: a step, and a network and epoch."""
    cuda = device.type == "cuda"
    for precision in ("bf16", "tf32"):
        config = config_of(model, size, precision=precision)
        plain = loop_step(config, size, device, graph=cuda)
        about = {"part": part, "model": model, "precision": precision}
        yield {
            **about,
            "way": "loop" + ", channels last, graph" * cuda,
            "members": 1,
            **plain,
            "faster": 1.0,
            "epoch_s_each": plain["ms"] * BATCHES[model] / 1e3,
        }
        for way in WAYS if cuda else WAYS[-1:]:
            fused = way != "torch's operations"
            for members in counts if fused or not cuda else counts[:2]:
                with without_nvcc() if way.endswith("without nvcc") else nullcontext():
                    row = stack_step(config, members, size, device, fused=fused)
                seconds = row["ms"] * BATCHES[model] / 1e3 / members
                how, faster = {"way": way, "members": members}, members * plain["ms"] / row["ms"]
                yield {**about, **how, **row, "faster": faster, "epoch_s_each": seconds}


@contextmanager
def without_nvcc() -> Iterator[None]:
    """Compute by kernels in Triton alone, as where nvcc is not installed."""
    library, cuda_library.library = cuda_library.library, lambda *_: None
    for cached in (cuda_launches.library, circular_launches.kernels_for):
        cached.cache_clear()
    try:
        yield
    finally:
        cuda_library.library = library
        for cached in (cuda_launches.library, circular_launches.kernels_for):
            cached.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, help="a file for the rows")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    device = launch(device=given.device).device
    size = GPU if device.type == "cuda" else CPU
    if device.type == "cpu":
        torch.set_num_threads(1)  # more would wait for each other at this size
    about = provenance(device)
    print(f"{about['device']}, torch {torch.__version__}, batch {size.batch}, width {size.width}", flush=True)
    for name, part in zip(PARTS, (starts, perceptrons, convolutional, depths, residual, vgg), strict=True):
        for row in part(size, device) if name in given.parts else ():
            shown = ((key, f"{value:.4g}" if isinstance(value, float) else value) for key, value in row.items())
            print("  ".join(f"{key} {value}" for key, value in shown), flush=True)
            if given.out is not None:
                given.out.parent.mkdir(parents=True, exist_ok=True)
                with given.out.open("a") as file:
                    file.write(json.dumps({**row, **about}) + "\n")


if __name__ == "__main__":
    main()
