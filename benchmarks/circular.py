"""Time each CUDA kernel for runs of circular convolutions, and print the throughput of its products.

python benchmarks/circular.py [--layers 994] [--images 128]

Needs a Hopper GPU and nvcc. A large product of matrices in bfloat16 reaches some 790 TFLOP/s on an H200.
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
GROUPS, GROUP = 16, 8  # of channels, as the kernels read samples
PRODUCTS = ("forward", "backward", "weight_grad")  # kernels that compute products


def milliseconds(call: Callable[[], object], repeats: int = 7) -> float:
    """Return the median time of a call on the GPU, after one that warms up."""
    call()
    times: list[float] = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=994)
    parser.add_argument("--images", type=int, default=128)
    args = parser.parse_args()
    device = torch.device("cuda", 0)
    kernels = circular_launches.kernels_for(device) if torch.cuda.is_available() else None
    if kernels is None:
        raise SystemExit("needs a Hopper GPU and nvcc")
    chunk = min(CircularRun.chunk, args.layers)
    names = tuple(f"layer{index}" for index in range(args.layers))
    slab = Slab(Stage(names, CHANNELS, CHANNELS, Grid(8, 8, 3, 1), activation="tanh"), 1, torch.float32, device)
    weight, bias = slab.weight, slab.bias
    assert weight.off is not None, "weights have masks"
    draws = torch.Generator(device).manual_seed(0)
    weight.value.normal_(generator=draws).mul_((CHANNELS * TAPS) ** -0.5)
    shape = (args.layers + 1, 1, args.images, GROUPS, PIXELS, GROUP)
    samples = torch.empty(shape, dtype=torch.bfloat16, device=device)
    samples[0].normal_(generator=draws)
    z_grads = torch.empty_like(samples[:chunk]).normal_(generator=draws)
    packed, x_grad = kernels.pack(weight.value), torch.empty_like(samples[0])
    inputs, off = samples[:chunk], weight.off[:chunk].view(torch.uint8)
    calls = {
        "pack": (args.layers, lambda: kernels.pack(weight.value)),
        "forward": (args.layers, lambda: kernels.forward(samples[0], packed[0], bias.value, samples[1:], keep=True)),
        "backward": (chunk, lambda: kernels.backward(z_grads, inputs, packed[1, :chunk], x_grad)),
        "weight_grad": (chunk, lambda: kernels.weight_grad(z_grads, inputs, off, weight.gradient[:chunk])),
        "bias_grad": (chunk, lambda: kernels.bias_grad(z_grads, bias.gradient[:chunk])),
    }
    flops = 2 * args.images * PIXELS * CHANNELS * CHANNELS * TAPS
    for name, (layers, call) in calls.items():
        microseconds = 1e3 * milliseconds(call) / layers
        throughput = f"  {flops / microseconds / 1e6:6.0f} TFLOP/s" if name in PRODUCTS else ""
        print(f"{name:12} {microseconds:7.2f} us a layer{throughput}")


if __name__ == "__main__":
    main()
