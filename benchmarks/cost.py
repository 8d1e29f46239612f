"""Time and memory of `sparsify`, against those of the model's own initialization and weights.

    python benchmarks/cost.py [linear gpt2 gpt2-xl ...] [--density 0.1] [--threads 1 2] [--busy 1]

Every measurement is a process of its own. Printed are the seconds of the model's own initialization and of `sparsify`,
their ratio (by the clock on the wall and by that of the processor), and how far `sparsify` raises the memory of the
process, in multiples of the weights' bytes. With --busy so many other processes compute beside it. Linux only: the
memory is read from /proc.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

DENSITIES = {"linear": 0.01}


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(8192, 32768))


def _gpt2(**sizes: int) -> nn.Module:
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))


MODELS = {
    "linear": linear,
    "tiny": lambda: _gpt2(n_embd=8, n_layer=1, n_head=1),
    "gpt2": lambda: _gpt2(),
    "gpt2-xl": lambda: _gpt2(n_embd=1600, n_layer=48, n_head=25),
    "gpt2-xl/12": lambda: _gpt2(n_embd=1600, n_layer=4, n_head=25),
}


def memory(field: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM the most since the last `forget`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(f"{field}:")))


def forget() -> None:
    """Let VmHWM begin at VmRSS."""
    Path("/proc/self/clear_refs").write_text("5")


def measure(name: str, density: float, threads: int) -> str:
    import orthosparse

    torch.set_num_threads(threads)
    tiny = MODELS["tiny"]() if name.startswith("gpt2") else nn.Linear(8, 8)
    orthosparse.sparsify(tiny, 0.5)  # imports
    start = clocks()
    model = MODELS[name]()
    built = [now - then for now, then in zip(clocks(), start, strict=True)]
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    before = memory("VmRSS")
    forget()
    start = clocks()
    report = orthosparse.sparsify(model, density, generator=torch.Generator().manual_seed(0))
    taken = [now - then for now, then in zip(clocks(), start, strict=True)]
    peak, worst = memory("VmHWM") - before, max(row.orthogonality for row in report.rows)
    times = ", ".join(
        f"{kind}: init {first:.1f} s, sparsify {second:.1f} s = {second / first:.2f} x"
        for kind, first, second in zip(("wall", "cpu"), built, taken, strict=True)
    )
    memories = f"memory +{peak / size:.2f} x of {size / 1e9:.2f} GB"
    return f"{name} at {density}, {threads} threads: {times}; {memories}; worst orthogonality {worst:.1e}"


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def spin() -> None:
    while True:
        sum(range(100_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["linear", "gpt2"], metavar="model", help=", ".join(MODELS))
    parser.add_argument("--density", type=float)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--busy", type=int, default=0, metavar="PROCESSES")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        print(measure(chosen.models[0], chosen.density, chosen.threads[0]), flush=True)
        return
    others = [multiprocessing.Process(target=spin, daemon=True) for _ in range(chosen.busy)]
    for other in others:
        other.start()
    for name in chosen.models:
        density = chosen.density or DENSITIES.get(name, 0.1)
        for threads in dict.fromkeys(chosen.threads):
            arguments = [name, "--density", str(density), "--threads", str(threads), "--alone"]
            subprocess.run([sys.executable, __file__, *arguments], check=True)
    for other in others:
        other.terminate()


if __name__ == "__main__":
    main()
