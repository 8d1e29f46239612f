"""What EOI makes of strided convolutions: rank and singular values with one tap, as in the paper, and with tiles.

python benchmarks/strides.py [DENSITY]

One line for each strided layer of a ViT-tiny/16, a ConvNeXt-atto, a ResNet-18 (timm) and the paper's ResNet32, at
density 0.2 unless said otherwise, under ERK: the rank of its map at each position of the smaller signal out of what the
shape allows, the smallest and largest singular value, the orthogonality score and the pixels that are never read.
"""

import sys

import torch
from torch import nn

import orthosparse
from orthosparse import isometry
from orthosparse.lab.models import build

NETWORKS = {
    "timm:vit_tiny_patch16_224": (3, 224, 224),
    "timm:convnext_atto": (3, 224, 224),
    "timm:resnet18": (3, 224, 224),
    "resnet32": (3, 32, 32),
}


def start(name: str, density: float, strided: str) -> tuple[nn.Module, orthosparse.Report]:
    g = torch.Generator().manual_seed(0)
    model = build(name, classes=10, in_shape=NETWORKS[name], generator=g)
    return model, orthosparse.sparsify(model, density, strided=strided, generator=g)


def main(density: float) -> None:
    print(
        f"{'network and layer':46} {'shape':>14} {'strided':>8} {'rank':>11} {'least':>7} {'largest':>8} {'score':>8}"
    )
    for name in NETWORKS:
        for strided in ("delta", "tile"):
            model, report = start(name, density, strided)
            layers = {key: layer for key, layer in orthosparse.find_layers(model).items() if layer.strided}
            spectra = isometry.layer_singular_values(model, layers=layers)
            for row in (row for row in report.rows if row.layer in layers):
                values = spectra[row.layer].values
                rank = f"{round(row.rank[1] * float((values > 0.5).float().mean()))} of {row.rank[1]}"
                shape = "x".join(map(str, row.shape))
                print(
                    f"{name.removeprefix('timm:') + ' ' + row.layer:46} {shape:>14} {strided:>8} {rank:>11} "
                    f"{values.min():7.3f} {values.max():8.3f} {row.orthogonality:8.1e}  {row.note}",
                    flush=True,
                )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.2)
