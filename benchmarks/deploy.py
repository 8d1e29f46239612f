"""Whole networks before and after `orthosparse.deploy`, one thread, float32; each layer timed again; dead units.

    python benchmarks/deploy.py mlp [--density 0.1] [--batch 1] [--record]
    python benchmarks/deploy.py vit|efficientnet|resnet50 --density 0.05 --record
    python benchmarks/deploy.py dead --network resnet32 --density 0.01 --record

Starts are EOI and trained for a few steps, so that active entries are not zero. The ratio of a network is the time of
the fastest of torch eager, channels-last and torch.compile, over that of what `deploy` returns; beside it stands the
time of the dense network in onnxruntime, where that is installed. `dead` compares what is removed with what the report
of `sparsify` says of SNIP. --record appends the row to results/benchmarks/deploy.jsonl.
"""

import argparse
import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

import orthosparse
from orthosparse.deploying.copies import arguments_of, inference_copy
from orthosparse.deploying.folding import CONVOLUTIONS, fold_norms
from orthosparse.deploying.modules import Entries, EntriesLinear
from orthosparse.deploying.shrinking import shrink
from orthosparse.deploying.tracing import record_shapes, traced
from orthosparse.lab.bench.timing import milliseconds
from orthosparse.lab.models import build
from orthosparse.lab.provenance import provenance

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "deploy.jsonl"
CPU = torch.device("cpu")
TARGETS = {  # by network, batch and density: how many times as fast
    ("mlp", 1): {0.1: 2.5, 0.05: 5.0, 0.02: 10.0},
    ("mlp", 64): {0.1: 2.2, 0.05: 4.0, 0.02: 10.0},
    ("vit", 1): {0.1: 1.4, 0.05: 1.6, 0.02: 1.9},
    ("efficientnet", 1): {0.05: 1.2, 0.02: 1.3},
    ("resnet50", 1): {0.02: 1.3},
}
TIMM = {"vit": "vit_small_patch16_224", "efficientnet": "efficientnet_b0", "resnet50": "resnet50"}


def mlp() -> nn.Module:
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.ReLU())][:-1])


def network(name: str, density: float) -> tuple[nn.Module, tuple[int, ...]]:
    """A network after three steps of SGD from an EOI start, and the shape of its samples."""
    generator = Generator().manual_seed(0)
    if name == "mlp":
        model, shape, classes = mlp(), (2048,), 2048
    else:
        model = build(f"timm:{TIMM[name]}", classes=1000, in_shape=(3, 224, 224), generator=generator)
        shape, classes = (3, 224, 224), 1000
    distribution = "uniform" if name == "mlp" else "erk"
    orthosparse.sparsify(model, density, distribution=distribution, scheme="eoi", generator=generator)
    x, y = torch.randn(4, *shape, generator=generator), torch.randint(classes, (4,), generator=generator)
    train(model, x, y, steps=3, rate=0.01)
    return model, shape


def train(model: nn.Module, x: Tensor, y: Tensor, *, steps: int, rate: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def measure(name: str, density: float, batch: int) -> dict[str, Any]:
    model, shape = network(name, density)
    masks = orthosparse.masks_of(model)
    active = sum(int(mask.sum()) for mask in masks.values())
    x = torch.randn(batch, *shape, generator=Generator().manual_seed(1))
    deployed, table = orthosparse.deploy(model, x, threads=1)
    given = {form: table.latency[form] for form in ("eager", "channels-last", "compiled") if form in table.latency}
    layers = second_times(copy.deepcopy(deployed), x)
    target = TARGETS.get((name, batch), {}).get(density)
    print(table)
    return {
        "part": "network",
        "network": TIMM.get(name, "MLP of six 2048 x 2048"),
        "batch": batch,
        "density": density,
        "ratio": table.ratio,
        "target": target,
        "against": min(given, key=given.__getitem__),
        "chosen": table.chosen,
        "milliseconds": {form: 1e3 * seconds for form, seconds in table.latency.items()},
        "onnxruntime_milliseconds": onnxruntime_milliseconds(model, x),
        "nonzero": nonzero_entries(model) / active,
        "error": table.error,
        "bytes": dict(table.bytes),
        "forms": {form: sum(row.form == form for row in table.rows) for form in {row.form for row in table.rows}},
        "sparse_layers": len(layers),
        "second_ratios": {key: float(value) for key, value in spread(layers).items()},
        "not_slower": sum(ratio >= 1 for ratio in layers.values()),
        "slower": {layer: ratio for layer, ratio in layers.items() if ratio < 1},
    }


def nonzero_entries(model: nn.Module) -> int:
    """How many active entries are not zero."""
    masks = orthosparse.masks_of(model)
    modules = dict(model.named_modules())
    return sum(int((modules[name].weight[mask] != 0).sum()) for name, mask in masks.items())


def spread(ratios: dict[str, float]) -> dict[str, float]:
    values = torch.tensor([*ratios.values()] or [float("nan")], dtype=torch.float64)
    return {"least": values.min(), "median": values.median(), "most": values.max()}


def second_times(deployed: nn.Module, x: Tensor) -> dict[str, float]:
    """Time of the faster dense form over that of the chosen one, for each sparse layer, timed again on its inputs."""
    sparse = {name: module for name, module in deployed.named_modules() if isinstance(module, Entries)}
    inputs: dict[str, Tensor] = {}

    def remember(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        inputs[names[module]] = args[0]

    names = {module: name for name, module in sparse.items()}
    for module in sparse.values():
        module.register_forward_pre_hook(remember)
    with torch.inference_mode():
        deployed(x)
        return {name: second_ratio(module, inputs[name]) for name, module in sparse.items()}


def second_ratio(module: Entries, x: Tensor) -> float:
    calls: dict[str, Callable[[], Any]] = {"chosen": lambda: module.forward(x)}
    for number, layer in enumerate(dense_forms(module)):
        calls[f"dense {number}"] = lambda layer=layer: layer(x)
    times = milliseconds(calls, CPU, rounds=9, block=0.005)
    return min(taken for name, taken in times.items() if name != "chosen") / times["chosen"]


def dense_forms(module: Entries) -> list[nn.Module]:
    weight = module.weight
    if isinstance(module, EntriesLinear):
        layer: nn.Module = nn.Linear(*weight.shape[::-1], bias=module.bias is not None)
    else:
        kernel, stride, padding, dilation = module.geometry
        kind = CONVOLUTIONS[weight.dim() - 3]
        groups = module.inputs // weight.shape[1]
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        layer = kind(module.inputs, len(weight), kernel, bias=module.bias is not None, **options)
    layer.requires_grad_(False)
    layer.weight.copy_(weight)
    if module.bias is not None:
        layer.bias.copy_(module.bias)
    return [layer, copy.deepcopy(layer).to(memory_format=torch.channels_last)] if weight.dim() == 4 else [layer]


def onnxruntime_milliseconds(model: nn.Module, x: Tensor) -> float | None:
    """The time of the dense network in onnxruntime on one thread; None where that is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    file = io.BytesIO()
    torch.onnx.export(inference_copy(model, None), (x,), dynamo=True, verbose=False).save(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x.numpy()}
    return milliseconds({"onnxruntime": lambda: session.run(None, feed)}, CPU, rounds=7, block=0.05)["onnxruntime"]


def digits(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The first 64 of scikit-learn's handwritten digits, enlarged."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.tensor(found.images[:64], dtype=torch.float32)[:, None] / 8 - 1
    images = functional.interpolate(images, shape[1:], mode="bilinear").expand(-1, shape[0], -1, -1).contiguous()
    return images, torch.tensor(found.target[:64])


def measure_dead(name: str, density: float) -> dict[str, Any]:
    """Units that a network loses, beside the dead rows and columns that the report counts."""
    generator = Generator().manual_seed(0)
    shape = (1, 28, 28) if name == "mlp" else (3, 32, 32)
    model = build(name, classes=10, in_shape=shape, generator=generator)
    images, labels = digits(shape)
    options = {"distribution": "snip", "scheme": "base", "batch": (images, labels), "generator": generator}
    report = orthosparse.sparsify(model, density, **options)
    train(model, images, labels, steps=10, rate=0.05)
    x = images[:1]
    model.eval()
    _, table = orthosparse.deploy(model, x, threads=1)
    print(table)
    shrunk = {split: without_dead_units(model, x, split=split) for split in (False, True)}
    with torch.inference_mode():
        expected = model(images)
        gaps = [(each(images) - expected).abs().max() / expected.abs().max() for each in shrunk.values()]
    return {
        "part": "dead",
        "network": name,
        "density": density,
        "dead_rows": sum(row.dead_outputs for row in report.rows),
        "dead_columns": sum(row.dead_inputs for row in report.rows),
        "removed": {"select channels" if split else "plain": removed(report, each) for split, each in shrunk.items()},
        "weights": table.weights,
        "error": max(map(float, gaps)),
        "outputs_vary_by": float(expected.std(0).max()),
        "chosen": table.chosen,
        "milliseconds": {form: 1e3 * seconds for form, seconds in table.latency.items()},
    }


def without_dead_units(model: nn.Module, x: Tensor, *, split: bool) -> nn.Module:
    arguments = arguments_of(x, None)
    graph, reason = traced(inference_copy(model, None), arguments, 0.0)
    assert graph is not None, reason
    fold_norms(graph)
    record_shapes(graph, arguments)
    shrink(graph, split=split)
    return graph


def removed(report: orthosparse.Report, shrunk: nn.Module) -> dict[str, int]:
    """How many rows and columns the layers of the report lost together, and how many weights they have left."""
    left = dict(shrunk.named_modules())
    shapes = {row.layer: left[row.layer].weight.shape if row.layer in left else (0, 0) for row in report.rows}
    return {
        "rows": sum(row.outputs - shapes[row.layer][0] for row in report.rows),
        "columns": sum(row.inputs - shapes[row.layer][1] for row in report.rows),
        "weights_left": sum(parameter.numel() for parameter in shrunk.parameters() if parameter.dim() > 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["mlp", *TIMM, "dead"])
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--network", default="mlp", choices=["mlp", "resnet32", "vgg16c"])
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    row = (
        measure_dead(chosen.network, chosen.density)
        if chosen.part == "dead"
        else measure(chosen.part, chosen.density, chosen.batch)
    )
    row |= provenance(CPU)
    print(json.dumps(row, indent=1))
    if chosen.record:
        with OUT.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
