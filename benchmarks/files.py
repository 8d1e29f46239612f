"""Sizes of the files that save_compact writes for whole networks, beside the dense file as it is and compressed.

    python benchmarks/files.py [--networks mlp resnet50] [--densities 0.1 0.01] [--record]

The weights are an EOI start with noise on every active entry, as after some steps of training. Each file is loaded into
a fresh model, which must have the same bits. --record appends the rows to results/benchmarks/files.jsonl.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import safetensors.torch
import torch
from torch import Generator, nn

import orthosparse
from orthosparse.lab.models import build
from orthosparse.lab.provenance import provenance
from orthosparse.masking import masked_layers

LIMITS = {0.1: 0.14, 0.01: 0.02}  # bytes of the file over those of the dense one, by density
OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "files.jsonl"


def mlp() -> nn.Module:
    return nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.ReLU())))


def resnet50() -> nn.Module:
    return build("resnet50", classes=1000, in_shape=(3, 224, 224), generator=Generator().manual_seed(0))


def resnet32() -> nn.Module:
    return build("resnet32", classes=10, in_shape=(3, 32, 32), generator=Generator().manual_seed(0))


NETWORKS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "resnet50": resnet50, "resnet32": resnet32}


@torch.no_grad()
def train_a_little(model: nn.Module, generator: Generator) -> None:
    """Add noise to every active entry, to biases and to what batch norms hold."""
    for masked in masked_layers(model).values():
        noise = torch.randn(masked.original.shape, generator=generator)
        masked.original.add_(torch.where(masked.holder.mask, noise, 0.0), alpha=1e-3)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 1 and tensor.is_floating_point():
            tensor.add_(torch.rand(tensor.shape, generator=generator), alpha=1e-3)


def bits(model: nn.Module) -> dict[str, bytes]:
    return {key: value.flatten().view(torch.uint8).numpy().tobytes() for key, value in model.state_dict().items()}


def zstd_size(data: bytes) -> int | None:
    """Return the size that the program zstd compresses to; None where there is none."""
    program = shutil.which("zstd")
    if program is None:
        return None
    return len(subprocess.run([program, "-q", "-c", "-3"], input=data, capture_output=True, check=True).stdout)


def measure(network: str, distribution: str, density: float, path: Path) -> dict[str, Any]:
    generator = Generator().manual_seed(0)
    model, other = NETWORKS[network](), NETWORKS[network]()
    report = orthosparse.sparsify(model, density, distribution=distribution, generator=generator)
    train_a_little(model, generator)
    dense = safetensors.torch.save({key: v for key, v in model.state_dict().items() if v.dtype is not torch.bool})
    begin = perf_counter()
    orthosparse.save_compact(model, path)
    saved = perf_counter()
    orthosparse.load_compact(path, other)
    loaded = perf_counter()
    return {
        "benchmark": "files",
        "network": network,
        "distribution": distribution,
        "density": density,
        "active": report.got,
        "dense_bytes": len(dense),
        "bytes": path.stat().st_size,
        "ratio": path.stat().st_size / len(dense),
        "limit": LIMITS.get(density),
        "equal_bits": bits(other) == bits(model),
        "zlib_ratio": len(zlib.compress(dense, 6)) / len(dense),
        "zstd_ratio": None if (size := zstd_size(dense)) is None else size / len(dense),
        "save_s": saved - begin,
        "load_s": loaded - saved,
    }


def line(row: dict[str, Any]) -> str:
    limit, zstd = (f"{row[name] or float('nan'):7.4f}" for name in ("limit", "zstd_ratio"))
    return (
        f"{row['network']:8} {row['distribution']:7} {row['density']:<5g} dense {row['dense_bytes'] / 2**20:.0f} MiB, "
        f"file {row['ratio']:.4f} (limit {limit}), zlib {row['zlib_ratio']:.4f}, zstd {zstd}, "
        f"equal bits {row['equal_bits']}, save {row['save_s']:.2f} s, load {row['load_s']:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--distributions", nargs="+", default=["erk", "uniform"])
    parser.add_argument("--densities", nargs="+", type=float, default=list(LIMITS))
    parser.add_argument("--record", action="store_true", help="append the rows to results/benchmarks/files.jsonl")
    options = parser.parse_args()
    asked = [(n, d, r) for n in options.networks for d in options.distributions for r in options.densities]
    with tempfile.TemporaryDirectory() as folder:
        for network, distribution, density in asked:
            row = measure(network, distribution, density, Path(folder) / "model.safetensors")
            print(line(row), flush=True)
            if options.record:
                with OUT.open("a") as file:
                    file.write(json.dumps({**row, **provenance(torch.device("cpu"))}) + "\n")


if __name__ == "__main__":
    main()
