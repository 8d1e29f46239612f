"""What sets the starts of one saliency mask apart: scale, places, taps and channels left out, stage by stage.

python benchmarks/starts.py DATA [ITERATIONS]

ResNet56 on CIFAR-10 below DATA, SNIP at density 0.05, seed 1: the starts of `orthosparse paper run aligned`, AI of 300
iterations unless said otherwise. For each stage: the squared norm of a layer's weight as a share of its rank; the share
of SNIP's places that are kept; of the active weights, those that are not zero; of those in 3 x 3 kernels, those that
are not at the centre; taps that a pair of channels and that an input channel use with weights that are not zero; and
channels without an active weight, of all outputs and of all inputs.
"""

import sys
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from orthosparse.lab.data import load
from orthosparse.lab.paper import aligned
from orthosparse.lab.training.assembly import started

State = dict[str, Tensor]


def measured(state: State, given: State, stage: str) -> str:
    layers = [(given[f"{name}_mask"], state[f"{name}_mask"], state[name]) for name in names(given, stage)]
    filled = [(weight != 0).flatten(2) for _, _, weight in layers]
    norm = fmean(float(weight.square().sum()) / min(weight.shape[:2]) for _, _, weight in layers)
    kept = sum(int((asked & mask).sum()) for asked, mask, _ in layers) / sum(int(asked.sum()) for asked, _, _ in layers)
    full = sum(int(each.sum()) for each in filled) / sum(int(mask.sum()) for _, mask, _ in layers)
    wide = [mask.flatten(2) for _, mask, _ in layers if mask.shape[-1] == 3]
    off = 1 - sum(int(mask[..., 4].sum()) for mask in wide) / sum(int(mask.sum()) for mask in wide)
    by_pair = fmean(float(each.sum() / each.any(-1).sum()) for each in filled)
    by_input = fmean(float(each.any(0).sum() / each.any(0).any(-1).sum()) for each in filled)
    dead = [
        f"{sum(int((~mask.flatten(2).any(-1).any(side)).sum()) for _, mask, _ in layers)} of "
        f"{sum(mask.shape[1 - side] for _, mask, _ in layers)}"
        for side in (1, 0)
    ]
    return f"{norm:8.2f} {kept:8.2f} {full:8.2f} {off:8.2f} {by_pair:8.2f} {by_input:8.2f} {dead[0]:>12} {dead[1]:>12}"


def names(state: State, stage: str) -> list[str]:
    return [name.removesuffix("_mask") for name in state if name.endswith("_mask") and name.startswith(stage)]


def main(root: str, iterations: int) -> None:
    data, device = load("cifar10", root), torch.device("cpu")
    networks = [each for each in aligned.experiments() if (each.model, each.distribution) == ("resnet56", "snip")]
    base = next(each for each in networks if each.scheme == "base")
    given = started(base, 1, data, device).state_dict()
    heads = ["norm", "kept", "nonzero", "off", "by pair", "by input"]
    print(f"{'start':44} {'stage':>6} {' '.join(f'{head:>8}' for head in heads)} {'dead out':>12} {'dead in':>12}")
    for each in networks:
        run = replace(each, options={"iterations": iterations}) if each.scheme == "ai" else each
        state = started(run, 1, data, device).state_dict()
        for stage in ("layer1", "layer2", "layer3"):
            print(f"{each.label().split('snip ')[1]:44} {stage:>6} {measured(state, given, stage)}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 300)
