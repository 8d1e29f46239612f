"""Time the kernels in CUDA for runs of circular convolutions, each by itself, and say how busy the tensor cores are.

python benchmarks/circular.py [--layers 994] [--images 128]

Needs a Hopper GPU and nvcc. For every kernel: microseconds a layer, and TFLOP/s where it multiplies. A large product of
matrices in bfloat16 reaches some 790 TFLOP/s on an H200.
"""

import argparse
from collections.abc import Callable
from statistics import median

import torch

from orthosparse.lab.models.stages import Grid, Stage
from orthosparse.lab.training.stacked import circular_launches
from orthosparse.lab.training.stacked.circular_run import CircularRun
from orthosparse.lab.training.stacked.slab import Slab

CHANNELS, PIXELS, TAPS = 128, 64, 9


def milliseconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Return the median time of a piece of work on the GPU, after a first time that does not count."""
    work()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=994)
    parser.add_argument("--images", type=int, default=128)
    given = parser.parse_args()
    device = torch.device("cuda", 0)
    kernels = circular_launches.kernels_for(device) if torch.cuda.is_available() else None
    if kernels is None:
        raise SystemExit("needs a Hopper GPU and nvcc")
    chunk = min(CircularRun.chunk, given.layers)
    names = tuple(f"layer{index}" for index in range(given.layers))
    slab = Slab(Stage(names, CHANNELS, CHANNELS, Grid(8, 8, 3, 1), activation="tanh"), 1, torch.float32, device)
    weight, bias = slab.weight, slab.bias
    assert weight.off is not None, "weights have masks"
    draws = torch.Generator(device).manual_seed(0)
    weight.value.normal_(generator=draws).mul_((CHANNELS * TAPS) ** -0.5)
    both = torch.empty(given.layers + 1, 1, given.images, 16, PIXELS, 8, dtype=torch.bfloat16, device=device)
    both[0].normal_(generator=draws)
    before = torch.empty_like(both[:chunk]).normal_(generator=draws)
    packed, found, off = kernels.pack(weight.value), torch.empty_like(both[0]), weight.off[:chunk].view(torch.uint8)
    work = {
        "pack": (given.layers, lambda: kernels.pack(weight.value)),
        "forward": (given.layers, lambda: kernels.forward(both[0], packed[0], bias.value, both[1:], keep=True)),
        "backward": (chunk, lambda: kernels.backward(before, both[:chunk], packed[1, :chunk], found)),
        "weight_grad": (chunk, lambda: kernels.weight_grad(before, both[:chunk], off, weight.gradient[:chunk])),
        "bias_grad": (chunk, lambda: kernels.bias_grad(before, bias.gradient[:chunk])),
    }
    flops = 2 * given.images * PIXELS * CHANNELS * CHANNELS * TAPS
    for name, (layers, call) in work.items():
        taken = 1e3 * milliseconds(call) / layers
        multiplies = name in ("forward", "backward", "weight_grad")
        print(f"{name:12} {taken:7.2f} us a layer" + (f"  {flops / taken / 1e6:6.0f} TFLOP/s" if multiplies else ""))


if __name__ == "__main__":
    main()
