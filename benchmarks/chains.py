"""What a chain of identities under batch norm does to gradients: why EOI at the centre may fail at its floors.

python benchmarks/chains.py DATA [ORDERS]

ResNet32 on CIFAR-10 below DATA, SNIP at density 0.02, seed 1: some starts of `orthosparse paper run aligned`, each
trained for 40 steps of 32 images, in several orders of the data. For each start: its 3 x 3 convolutions with weights at
one tap only, and those that are the identity. Then, medians over the orders and largest of all: in float32, the norm of
the gradient of one channel before a batch norm of the last stage, and that of the whole gradient after five steps; in
bfloat16, by the lab's stack, that of the whole gradient after five steps, and the loss.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from orthosparse.lab.data import Dataset, load
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper import aligned
from orthosparse.lab.training.assembly import assemble, started
from orthosparse.lab.training.stacked.assembly import stack_of
from orthosparse.lab.training.starts import Start
from orthosparse.lab.training.state import State
from orthosparse.lab.training.step import gradients, targets

STEPS, BATCH, SETTLED = 40, 32, 5
STARTS = {
    "EOI": {},
    "EOI, permuted": {"start": "permuted"},
    "EOI, random taps": {"tap": "random"},
    "EOI, aligned": {"align": "mask", "tap": "mask"},
}


def run_of(options: dict[str, str], precision: str) -> Training:
    """Return the network of the study, with smaller batches."""
    run = next(
        each
        for each in aligned.experiments()
        if (each.model, each.density, each.distribution, each.scheme) == ("resnet32", 0.02, "snip", "eoi")
        and each.options == options
    )
    return replace(run, recipe=replace(run.recipe, batch=BATCH, precision=precision))


def trained(state: State) -> Iterator[tuple[float, float]]:
    """Train for some steps; yield the loss and the norm of the gradient at each, before the weights change."""
    state.set_rate()
    for _, (images, labels) in zip(range(STEPS), state.loader.epoch(0), strict=False):
        given = targets(state, images, labels)
        losses, _ = gradients(state, *given, BATCH)
        yield float(losses), float(state.networks.gradient_norms())
        state.networks.update(state.records.alive)


def in_float32(run: Training, order: int, data: Dataset, start: dict[str, Tensor], fabric: Fabric) -> list[float]:
    """Return the largest norms of a gradient: by one channel before a batch norm of the last stage, and by weights."""
    state, found, norms = assemble(run, order, fabric, data=data, saved=start), [0.0], []
    network: nn.Module = state.networks.network  # type: ignore[attr-defined]

    def note(module: nn.Module, grads: tuple[Tensor, ...], _: object) -> None:
        del module
        found.append(float(grads[0].transpose(0, 1).flatten(1).norm(dim=1).max()))

    for name, module in network.named_modules():
        if isinstance(module, nn.BatchNorm2d) and name.startswith("layer3") and "shortcut" not in name:
            module.register_full_backward_hook(note)
    norms += [norm for _, norm in trained(state)]
    return [max(found), max(norms[SETTLED:])]


def in_bfloat16(run: Training, order: int, data: Dataset, start: dict[str, Tensor], fabric: Fabric) -> list[float]:
    """Return the largest norm of the gradient and the largest loss."""
    losses, norms = zip(*trained(stack_of([(run, order)], [Start.of(start)], data, fabric)), strict=True)
    return [max(norms[SETTLED:]), max(losses)]


def shape_of(state: dict[str, Tensor]) -> tuple[int, int, int]:
    """Return how many 3 x 3 convolutions have one tap only, how many are the identity, and how many there are."""
    wide = [state[name] for name in state if name.endswith("weight") and state[name].shape[2:] == (3, 3)]
    masks = [state[name] for name in state if name.endswith("weight_mask") and state[name].shape[2:] == (3, 3)]
    one = sum(int(mask.any(0).any(0).sum()) == 1 for mask in masks)
    same = sum(torch.equal(weight[..., 1, 1], torch.eye(*weight.shape[:2])) for weight in wide)
    return one, same, len(wide)


def main(root: str, orders: int) -> None:
    data, fabric = load("cifar10", root), Fabric(accelerator="cpu", devices=1)
    print(f"{'start':18} {'one tap, identity, all':>24} {'channel':>16} {'float32':>14} {'bfloat16':>16} {'loss':>16}")
    for name, options in STARTS.items():
        start = started(run_of(options, "fp32"), 1, data, torch.device("cpu")).state_dict()
        found = [
            in_float32(run_of(options, "fp32"), order, data, start, fabric)
            + in_bfloat16(run_of(options, "bf16"), order, data, start, fabric)
            for order in range(1, orders + 1)
        ]
        cells = [f"{median(each):.3g}, {max(each):.3g}" for each in zip(*found, strict=True)]
        print(f"{name:18} {shape_of(start)!s:>24} " + " ".join(f"{cell:>16}" for cell in cells), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10)
