"""The evidence behind the how-to pages: which distribution, scheme, floor rule and depthwise rule, measured.

python benchmarks/choices.py [spectra] [schemes] [floors] [floor_rules] [depthwise] [depthwise_trained] [structures]
    [taps]

Writes one Markdown table a topic, which the pages include. `spectra` reads the rows under results/; the others compute,
on one thread and on scikit-learn's digits: about half an hour in all.
Options: --seeds N, --out FOLDER (docs/evidence).
"""

import argparse
import json
import math
import platform
from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle, islice, pairwise, product
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import orthosparse
from orthosparse import isometry
from orthosparse.lab.data import Dataset, Loader, load
from orthosparse.lab.models import build, dense_init
from orthosparse.lab.seeds import fenced

ROOT = Path(__file__).parent.parent
Table = list[list[str]]
RATES = (0.01, 0.05)  # what trains best at one need not at the other: both are shown


def network(depth: int, activation: str, seed: int) -> nn.Module:
    g = torch.Generator().manual_seed(seed)
    model = build("mlp", classes=10, in_shape=(1, 8, 8), activation=activation, depth=depth, generator=g)
    dense_init(model, generator=g)
    return model


class Separable(nn.Sequential):
    """Three blocks of a depthwise 3 x 3 and a 1 x 1 convolution, as in EfficientNet, for images of 8 x 8."""

    def __init__(self, width: int = 48) -> None:
        blocks = [
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            )
            for _ in range(3)
        ]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
        super().__init__(nn.Conv2d(1, width, 3, padding=1, bias=False), *blocks, *head)


class Residual(nn.Module):
    """Adds to its input what two linear layers make of the normalized input, as a block of a transformer does."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


def perceptron(depth: int, activation: type[nn.Module], *widths: int) -> nn.Module:
    """Layers of the given widths in turns."""
    sides = [64, *islice(cycle(widths), depth - 1), 10]
    layers = [
        part for out, into in zip(sides[1:], sides, strict=False) for part in (nn.Linear(into, out), activation())
    ]
    return nn.Sequential(nn.Flatten(), *layers[:-1])


def residual(width: int, hidden: int | None = None) -> nn.Module:
    blocks = [Residual(width, hidden or width) for _ in range(8)]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), *blocks, nn.LayerNorm(width), nn.Linear(width, 10))


def trained(model: nn.Module, seed: int, rate: float, epochs: int = 20, data: Dataset | None = None) -> float:
    """Test accuracy after SGD with Nesterov momentum 0.9, batches of 64, weight decay 1e-4, a cosine down to 0.

    It is nan where the loss ceases to be finite.
    """
    data = data or load("digits", validation=False)
    loader = Loader(data.train, batch=64, seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        for x, y in loader.epoch(epoch):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            if not loss.isfinite():
                return math.nan
            loss.backward()
            optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        right = [model(x).argmax(1) == y for x, y in Loader(data.test, batch=500, train=False).epoch(0)]
    return torch.cat(right).double().mean().item()


def scored_on(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    return next(iter(Loader(load("digits").train, batch=256, seed=seed).epoch(0)))


def accuracy(values: Iterable[float]) -> str:
    found = [100 * value for value in values]
    return f"{mean(found):.1f} ± {stdev(found):.1f}" if len(found) > 1 else f"{found[0]:.1f}"


def schemes(seeds: range) -> Table:
    """Distributions x schemes on two perceptrons at density 0.05."""
    table = [["network", "distribution", "rate", "base", "ai", "eoi", "below floor"]]
    for depth, activation in ((7, "relu"), (30, "tanh")):
        for distribution, rate in product(("uniform", "erk", "snip", "grasp", "synflow"), RATES):
            if (distribution, activation) == ("synflow", "tanh"):
                continue  # not defined for it
            found: dict[str, list[float]] = {}
            below = []
            for seed in seeds:
                for scheme in ("base", "ai", "eoi"):
                    model, g = network(depth, activation, seed), torch.Generator().manual_seed(seed)
                    options = {"ai": {"iterations": 1000}, "eoi": {"align": "none"}}.get(scheme, {})
                    report = orthosparse.sparsify(
                        model,
                        0.05,
                        distribution=distribution,
                        scheme=scheme,
                        batch=scored_on(seed),
                        generator=g,
                        **options,
                    )
                    found.setdefault(scheme, []).append(trained(model, seed, rate))
                below.append(sum(row.note.startswith("raised") for row in report.rows))
            cells = [*map(accuracy, found.values()), str(max(below))]
            table.append([f"{depth} layers, {activation}", distribution, str(rate), *cells])
            print(table[-1], flush=True)
    return table


def spectra(seeds: range) -> Table:
    """Singular values of the input-output Jacobian out of the committed rows, density 0.05."""
    del seeds  # those of the rows
    lines = (ROOT / "results" / "singular_values.jsonl").read_text().splitlines()
    rows = [{**row["fields"], **row["metrics"]} for row in map(json.loads, lines) if row.get("kind") == "spectrum"]
    table = [["activation", "distribution", "base", "ai", "eoi"]]
    for activation in ("linear", "tanh", "relu"):
        for distribution in ("uniform", "erk", "snip", "grasp", "synflow"):
            cells = []
            for scheme in ("base", "ai", "eoi"):
                wanted = {"density": 0.05, "activation": activation, "distribution": distribution, "scheme": scheme}
                here = [row for row in rows if wanted.items() <= row.items()]
                cells += [f"{mean(r['mean'] for r in here):.2g} ({max(r['max'] for r in here):.2g})"] if here else []
            if cells:
                table.append([activation, distribution, *cells])
    return table


def floors(seeds: range) -> Table:
    """The least density of each network, and what the rules make of one below some layers' floors."""
    del seeds  # nothing is drawn
    table = [["network", "layers", "least density", "uniform at 0.01", "erk at 0.01", "erk at 0.1"]]
    for name, shape in (
        ("mlp", (1, 28, 28)), ("resnet32", (3, 32, 32)), ("vgg16c", (3, 32, 32)), ("resnet50", (3, 224, 224)),
        ("efficientnet_b0", (3, 64, 64)), ("deit3_small", (3, 224, 224)),
    ):  # fmt: skip
        g = torch.Generator().manual_seed(0)
        model = build(name, classes=10, in_shape=shape, generator=g)
        layers = {key: layer for key, layer in orthosparse.find_layers(model).items() if layer.groups == 1}
        least = sum(layer.floor for layer in layers.values()) / sum(layer.numel for layer in layers.values())
        below = []
        for distribution, density in (("uniform", 0.01), ("erk", 0.01), ("erk", 0.1)):
            masks = orthosparse.DISTRIBUTIONS[distribution](model, density, generator=g)
            below.append(sum(int(masks[key].sum()) < layer.floor for key, layer in layers.items()))
        table.append([name, str(len(layers)), f"{least:.4f}", *(f"{number} below" for number in below)])
    return table


def floor_rules(seeds: range) -> Table:
    """Training at a density below the floors of some layers, under either rule."""
    table = [["network", "density", "rate", "raise", "partial", "base", "below floor"]]
    for depth, density, rate in product((7, 30), (0.015, 0.03), RATES):
        found: dict[str, list[float]] = {}
        raised = 0
        for seed in seeds:
            for rule in ("raise", "partial", "base"):
                g, model = torch.Generator().manual_seed(seed), network(depth, "tanh", seed)
                how = {"scheme": "base"} if rule == "base" else {"floor": rule, "align": "none"}
                report = orthosparse.sparsify(
                    model, density, distribution="snip", batch=scored_on(seed), generator=g, **how
                )
                raised = max(raised, sum(row.note.startswith("raised") for row in report.rows))
                found.setdefault(rule, []).append(trained(model, seed, rate))
        table.append([f"{depth} layers, tanh", str(density), str(rate), *map(accuracy, found.values()), str(raised)])
        print(table[-1], flush=True)
    return table


def _separable(density: float, rate: float, seed: int, how: dict[str, str], *, orthogonal: bool) -> float:
    generator = torch.Generator().manual_seed(seed)
    with fenced(seed):  # torch's modules draw their first weights from the global generator
        model = Separable()
    if orthogonal:
        dense_init(model, generator=generator)
    orthosparse.sparsify(model, density, generator=generator, **how)
    return trained(model, seed, rate)


def depthwise(seeds: range) -> Table:
    """The rules for depthwise layers on EfficientNet-B0, untrained; two keep values of the dense start."""
    del seeds  # one draw each
    kept = [(start, orthogonal) for start in ("base", "keep") for orthogonal in (False, True)]
    starts = [*kept, ("center", True), ("shift", True), ("paper-code", True)]
    heads = ["worst depthwise layer", "silent channels", "live weights", "first gradient"]
    table = [["distribution", "start", "dense start", *heads]]
    for distribution, (start, orthogonal) in product(("erk", "uniform"), starts):
        how = {"scheme": "base"} if start == "base" else {"depthwise": start}
        g = torch.Generator().manual_seed(0)
        model = build("efficientnet_b0", classes=10, in_shape=(3, 64, 64), generator=g)
        if orthogonal:
            dense_init(model, generator=g)
        report = orthosparse.sparsify(model, 0.1, distribution=distribution, generator=g, **how)
        live = isometry.effective_density(model, torch.ones(1, 3, 64, 64))
        layers = {name: layer for name, layer in orthosparse.find_layers(model).items() if layer.depthwise}
        worst = max(row.orthogonality for row in report.rows if row.layer in layers)
        silent = [channel for name in layers for channel in (model.get_submodule(name).weight.flatten(1) == 0).all(1)]
        model.train()
        with fenced(0):  # dropout and stochastic depth draw from the global generator
            cross_entropy(model(torch.randn(64, 3, 64, 64, generator=g)), torch.arange(64) % 10).backward()
        gradient = torch.stack([each.grad.norm() for each in model.parameters()]).norm()
        dense = "" if start not in ("base", "keep") else "orthogonal" if orthogonal else "its own"
        cells = [f"{worst:.1e}", f"{sum(silent) / len(silent):.2f}", f"{float(live):.4f}", f"{float(gradient):.2g}"]
        table.append([distribution, start, dense, *cells])
        print(table[-1], flush=True)
    return table


def depthwise_trained(seeds: range) -> Table:
    """The same rules on a small network of depthwise-separable blocks, trained; two keep values of the dense start."""
    starts = {"base": {"scheme": "base"}, **{rule: {"depthwise": rule} for rule in ("keep", "center", "shift")}}
    dense = {"torch's": False, "orthogonal": True}
    table = [["density", "rate", "dense start", *starts]]
    for (density, rate), (name, orthogonal) in product(product((0.3, 0.1), RATES), dense.items()):
        cells = [
            accuracy(_separable(density, rate, seed, how, orthogonal=orthogonal) for seed in seeds)
            for how in starts.values()
        ]
        table.append([str(density), str(rate), name, *cells])
        print(table[-1], flush=True)
    return table


def structures(seeds: range) -> Table:
    """Starts of blocks of 16 at density 0.2, beside the dense network and a thin one of as many parameters."""
    networks: dict[str, Callable[[int], nn.Module]] = {
        "7 layers, relu": partial(perceptron, 7, nn.ReLU),
        "30 layers, tanh": partial(perceptron, 30, nn.Tanh),
        "8 residual blocks, layer norm": residual,
    }
    blocks = {scheme: {"scheme": scheme, "structure": "block:16"} for scheme in ("base", "scaled", "eoi")}
    starts = {"dense": None, "thin dense": None, **blocks, "eoi, entries": {"scheme": "eoi"}}
    table = [["network", "rate", *starts]]
    for (name, make), rate in product(networks.items(), RATES):
        cells = []
        for start, how in starts.items():
            width = round(128 * 0.2**0.5) if start == "thin dense" else 128
            cells.append(accuracy(_structured(make, width, how, rate, seed) for seed in seeds))
        table.append([name, str(rate), *cells])
        print(table[-1], flush=True)
    return table


def _structured(
    make: Callable[[int], nn.Module], width: int, how: dict[str, str] | None, rate: float, seed: int
) -> float:
    generator = torch.Generator().manual_seed(seed)
    with fenced(seed):
        model = make(width)
    dense_init(model, generator=generator)
    if how is not None:
        orthosparse.sparsify(model, 0.2, distribution="uniform", generator=generator, **how)
    return trained(model, seed, rate)


def plain(depth: int) -> nn.Module:
    """A convolutional network of tanh for images of 8 x 8, with zero padding and nothing that normalizes."""
    pairs = pairwise([1, *[16] * depth])
    parts = [part for into, out in pairs for part in (nn.Conv2d(into, out, 3, padding=1, bias=False), nn.Tanh())]
    return nn.Sequential(nn.Sequential(*parts), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def taps(seeds: range) -> Table:
    """The centre and random taps in plain networks: singular values of their convolutions, and training."""
    table = [["layers", "tap", "mean singular value", "largest", "test accuracy"]]
    for depth, tap in product((10, 30, 100), ("center", "random")):
        spectra, accuracies = [], []
        for seed in seeds:
            with fenced(seed):
                model = plain(depth)
            orthosparse.sparsify(model, 0.2, tap=tap, exclude=["3"], generator=torch.Generator().manual_seed(seed))
            linear = nn.Sequential(*[part for part in model[0][2:] if isinstance(part, nn.Conv2d)])
            spectra.append(isometry.singular_values(linear, torch.zeros(1, 16, 8, 8)))
            accuracies.append(trained(model, seed, 0.05, epochs=10))
        figures = mean(float(each.mean) for each in spectra), max(float(each.max) for each in spectra)
        table.append([str(depth), tap, *(f"{figure:.2g}" for figure in figures), accuracy(accuracies)])
        print(table[-1], flush=True)
    return table


TOPICS: dict[str, Callable[[range], Table]] = {
    "spectra": spectra,
    "schemes": schemes,
    "floors": floors,
    "floor_rules": floor_rules,
    "depthwise": depthwise,
    "depthwise_trained": depthwise_trained,
    "structures": structures,
    "taps": taps,
}


def markdown(table: Table) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([lines[0], "|" + "---|" * len(table[0]), *lines[1:]]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", nargs="*", choices=[*TOPICS, []], default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "evidence")
    given = parser.parse_args()
    write({topic: TOPICS[topic] for topic in given.topics or TOPICS}, range(given.seeds), given.out)


def write(topics: dict[str, Callable[[range], Table]], seeds: range, out: Path) -> None:
    """Write and print the table of each topic, computed on one thread."""
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    for topic, tabulated in topics.items():
        table = markdown(tabulated(seeds))
        (out / f"{topic}.md").write_text(table)
        print(f"{topic}, {platform.machine()}, torch {torch.__version__}\n{table}", flush=True)


if __name__ == "__main__":
    main()
