"""Look before you train: spectrum, live paths and gradients of two starts of the same network."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import orthosparse
from orthosparse import isometry


def network(depth: int = 30) -> nn.Module:
    layers = [layer for _ in range(depth) for layer in (nn.Linear(100, 100), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(100, 10))


def main(depth: int = 30, density: float = 0.05) -> dict[str, isometry.Spectrum]:
    spectra = {}
    for scheme in ("base", "eoi"):
        g = torch.Generator().manual_seed(0)
        model = network(depth)
        for layer in orthosparse.find_layers(model).values():
            nn.init.orthogonal_(layer.parameter(), generator=g)  # a good dense start
        report = orthosparse.sparsify(model, density, scheme=scheme, generator=g)
        x, y = torch.randn(8, 100, generator=g), torch.randint(10, (8,), generator=g)

        spectra[scheme] = spectrum = isometry.singular_values(model, x)
        live = isometry.effective_density(model, x)
        flow = isometry.gradient_flow(model, cross_entropy, (x, y))
        worst = max(float(score) for score in isometry.orthogonality_score(model).values())
        print(f"{scheme}: {report.got} weights, worst layer ||A A^T - I|| {worst:.1e}")
        print(f"  singular values of the Jacobian {spectrum.min:.1e} to {spectrum.max:.1e}")
        print(f"  on a live path: {float(live):.4f} of the weights, active: {live.density:.4f}")
        print(f"  gradient norm: first layer {flow.norms['0']:.1e}, last layer {flow.norms[str(2 * depth)]:.1e}")
    return spectra


if __name__ == "__main__":
    main()
