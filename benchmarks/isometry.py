"""Time and memory of measuring isometry: a ResNet-50 at 224 pixels, and matrix-free values beside exact ones.

python benchmarks/isometry.py [resnet50] [methods]
"""

import resource
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

import orthosparse
from orthosparse import init, isometry


def _gigabytes() -> float:
    """Most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _timed(what: str, function: Callable[[], object]) -> object:
    started, cpu = time.perf_counter(), time.process_time()
    result = function()
    wall, spent = time.perf_counter() - started, time.process_time() - cpu
    print(f"{what:<46} {wall:8.1f} s {spent:8.1f} cpu s   {_gigabytes():5.2f} GB at most", flush=True)
    return result


def resnet50() -> None:
    """Orthogonality of all layers, dense and at density 0.1 from EOI, and the latter's largest singular value."""
    import timm

    g = torch.Generator().manual_seed(0)
    model = timm.create_model("resnet50").eval()
    x = torch.randn(1, 3, 224, 224, generator=g)
    print(f"resnet50, 224 pixels, {torch.get_num_threads()} threads, {_gigabytes():.2f} GB before")
    _timed("orthogonality of all layers, dense", lambda: isometry.orthogonality_score(model, x))
    orthosparse.sparsify(model, 0.1, generator=g)
    top = _timed("largest singular value", lambda: isometry.singular_values(model, x, probes=4, steps=12, generator=g))
    scores = _timed("orthogonality of all layers", lambda: isometry.orthogonality_score(model, x))
    _timed(
        "singular values through layer1",
        lambda: isometry.singular_values(model, x, through="layer1", probes=4, steps=12),
    )
    _timed("effective density (64 pixels)", lambda: isometry.effective_density(model, x[:, :, :64, :64]))
    print(top)
    assert isinstance(scores, dict)
    print(f"{len(scores)} layers, worst score {max(map(float, scores.values())):.2e}")


def _mlp(sizes: list[int], act: type[nn.Module], g: torch.Generator) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layer = nn.Linear(a, b)
        init.orthogonal_(layer.weight, generator=g)
        layers += [layer, act()]
    return nn.Sequential(*layers)


def methods() -> None:
    """Relative errors of matrix-free values, and products spent."""
    print(f"{'network':<24} {'top':>9} {'mean':>9} {'said':>9} {'products':>9} {'exact takes':>11}")
    for act in (nn.Tanh, nn.ReLU):
        for sizes in ([200, 200, 200], [500, 500, 500], [1000, 1000, 1000], [2000, 2000, 2000]):
            g = torch.Generator().manual_seed(0)
            model, x = _mlp(sizes, act, g), torch.randn(1, sizes[0], generator=g)
            exact = isometry.singular_values(model, x, method="exact")
            free = isometry.singular_values(model, x, method="matrix_free", generator=g)
            print(
                f"{act.__name__ + ' ' + 'x'.join(map(str, sizes)):<24} {abs(free.max / exact.max - 1):9.1e} "
                f"{abs(free.mean / exact.mean - 1):9.1e} {free.mean_error / exact.mean:9.1e} {free.products:9d} "
                f"{exact.products:11d}",
                flush=True,
            )


def main() -> None:
    for name in sys.argv[1:] or ["resnet50", "methods"]:
        {"resnet50": resnet50, "methods": methods}[name]()


if __name__ == "__main__":
    main()
