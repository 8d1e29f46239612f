"""What a chain of identities under batch norm does to gradients: why EOI at the centre may fail at its floors.

python benchmarks/chains.py DATA [--network resnet32] [--density 0.02] [--seed 1] [--released]
    [--orders 10] [--batch 32] [--float32]

A residual network on CIFAR-10 below DATA, SNIP, by default at a density at which EOI has failed; --released scores as
the paper's released code does. Some starts of `orthosparse paper run aligned`, each trained for 40 steps of --batch
images in several orders of the data. For each:

- its 3 x 3 convolutions with weights at one tap only, those that are the identity, and all of them;
- the longest chain of convolutions of the last stage through which a channel passes as it is, and how many channels do
  so through four or more;
- in float32, medians over the orders and the largest of all: the norm of the gradient of one channel before a batch
  norm of the last stage, and that of the whole gradient after five steps; and in how many orders the loss ceased to be
  finite;
- in bfloat16, by the lab's stack (unless --float32): the norm of the whole gradient after five steps, and the loss.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from orthosparse.lab.data import Dataset, load
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.training.assembly import assemble, started
from orthosparse.lab.training.stacked.assembly import stack_of
from orthosparse.lab.training.starts import Start
from orthosparse.lab.training.state import State
from orthosparse.lab.training.step import gradients, targets

STEPS, SETTLED, CHAIN = 40, 5, 4
DENSITIES = {"resnet32": 0.02, "resnet56": 0.05, "resnet110": 0.05}
STARTS = {
    "EOI": {},
    "EOI, permuted": {"start": "permuted"},
    "EOI, random taps": {"tap": "random"},
    "EOI, aligned": {"align": "mask", "tap": "mask"},
}


def run_of(given: argparse.Namespace, options: dict[str, str]) -> Training:
    """Return the network by the paper's recipe, in float32."""
    density = given.density or DENSITIES[given.network]
    compat = {"compat": "paper-code"} if given.released else {}
    run = Training(given.network, "cifar10", density, "snip", "eoi", options={**options, **compat})
    return replace(run, recipe=replace(run.recipe, precision="fp32"))


def trained(state: State) -> Iterator[tuple[float, float]]:
    """Train for some steps; yield the loss and the norm of the gradient at each, before the weights change."""
    state.set_rate()
    for _, (images, labels) in zip(range(STEPS), state.loader.epoch(0), strict=False):
        given = targets(state, images, labels)
        losses, _ = gradients(state, *given, state.recipe.batch)
        yield float(losses), float(state.networks.gradient_norms())
        if not math.isfinite(losses):
            return
        state.networks.update(state.records.alive)


def in_float32(run: Training, order: int, data: Dataset, start: dict[str, Tensor], fabric: Fabric) -> list[float]:
    """Return the largest gradients, of a channel before a batch norm and of all weights, and the last loss."""
    state, found = assemble(run, order, fabric, data=data, saved=start), [0.0]
    network: nn.Module = state.networks.network  # type: ignore[attr-defined]

    def note(module: nn.Module, grads: tuple[Tensor, ...], _: object) -> None:
        del module
        found.append(float(grads[0].transpose(0, 1).flatten(1).norm(dim=1).max()))

    for name, module in network.named_modules():
        if isinstance(module, nn.BatchNorm2d) and name.startswith("layer3") and "shortcut" not in name:
            module.register_full_backward_hook(note)
    losses, norms = zip(*trained(state), strict=True)
    return [max(found), max(norms[SETTLED:], default=math.inf), losses[-1]]


def in_bfloat16(run: Training, order: int, data: Dataset, start: dict[str, Tensor], fabric: Fabric) -> list[float]:
    """Return the largest norm of the gradient and the largest loss."""
    losses, norms = zip(*trained(stack_of([(run, order)], [Start.of(start)], data, fabric)), strict=True)
    return [max(norms[SETTLED:]), max(losses)]


def shape_of(state: dict[str, Tensor]) -> str:
    """Return convolutions with one tap, identities and all, the longest chain, and the channels of long chains."""
    names = [name for name in state if name.endswith("weight") and state[name].shape[2:] == (3, 3)]
    masks = [state[f"{name}_mask"].flatten(2) for name in names]
    one = sum(int(mask.any(0).any(0).sum()) == 1 for mask in masks)
    same = sum(torch.equal(state[name][..., 1, 1], torch.eye(*state[name].shape[:2])) for name in names)
    last = [mask for name, mask in zip(names, masks, strict=True) if name.startswith("layer3")]
    chain = longest = torch.zeros(last[-1].shape[0], dtype=torch.int64)
    for mask in last[1:]:  # the first is strided
        chain = (chain + 1) * unmixed(mask)
        longest = torch.maximum(longest, chain)
    return f"{one}, {same}, {len(names)}; {int(longest.max())}, {int((longest >= CHAIN).sum())}"


def unmixed(mask: Tensor) -> Tensor:
    """Return which channels a layer of a mask ``[channels, channels, taps]`` passes on as they are, alone."""
    return (mask.sum((1, 2)) == 1) & (mask.sum((0, 2)) == 1) & mask[..., mask.shape[2] // 2].diagonal()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--network", choices=DENSITIES, default="resnet32")
    parser.add_argument("--density", type=float)
    parser.add_argument("--seed", type=int, default=1, help="of the starts")
    parser.add_argument("--released", action="store_true", help="score as the paper's released code does")
    parser.add_argument("--orders", type=int, default=10, help="0 only counts")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--float32", action="store_true", help="leave out bfloat16")
    given = parser.parse_args()
    torch.set_num_threads(1)
    data, fabric = load("cifar10", given.data), Fabric(accelerator="cpu", devices=1)
    for name, options in STARTS.items():
        run = run_of(given, options)
        start = started(
            run, given.seed, data, torch.device("cpu")
        ).state_dict()  # scored by a batch of the recipe's size
        run = replace(run, recipe=replace(run.recipe, batch=given.batch))
        print(f"{name}: {shape_of(start)}", end="", flush=True)
        if orders := range(1, given.orders + 1):
            channels, norms, losses = zip(*(in_float32(run, each, data, start, fabric) for each in orders), strict=True)
            lost = sum(not math.isfinite(loss) for loss in losses)
            print(f"; float32 {spread(channels)}; {spread(norms)}; not finite in {lost}", end="", flush=True)
        if orders and not given.float32:
            run = replace(run, recipe=replace(run.recipe, precision="bf16"))
            found = zip(*(in_bfloat16(run, each, data, start, fabric) for each in orders), strict=True)
            print(f"; bfloat16 {'; '.join(map(spread, found))}", end="")
        print(flush=True)


def spread(values: Sequence[float]) -> str:
    return f"{median(values):.3g}, at most {max(values):.3g}"


if __name__ == "__main__":
    main()
