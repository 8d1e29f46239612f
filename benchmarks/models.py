"""Time of sparsify on whole models, beside the time their own initialisation takes.

    python benchmarks/models.py [NAME ...]
"""

import importlib.util
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import orthosparse


def _allow_torchvision_on_cpu() -> None:
    """timm imports torchvision, whose wheel wants operators that a CPU build of torch lacks: declare them."""
    if not torch.cuda.is_available() and importlib.util.find_spec("torchvision"):
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)


_KEPT: list[torch.library.Library] = []


def _timm(name: str) -> nn.Module:
    import timm

    return timm.create_model(name)


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


MODELS: dict[str, Callable[[], nn.Module]] = {
    "efficientnet_b0": lambda: _timm("efficientnet_b0"),
    "resnet50": lambda: _timm("resnet50"),
    "deit3_small_patch16_224": lambda: _timm("deit3_small_patch16_224"),
    "convnext_tiny": lambda: _timm("convnext_tiny"),
    "gpt2": _gpt2,
}


def redraw(model: nn.Module) -> None:
    """What torch itself does to start these layers."""
    for layer in orthosparse.find_layers(model).values():
        nn.init.kaiming_uniform_(layer.parameter(), a=5**0.5)


def main(names: list[str]) -> None:
    _allow_torchvision_on_cpu()
    print(f"{'model':26}{'layers':>7}{'weights':>13}{'sparsify s':>12}{'EOI s':>8}{'own init s':>12}{'EOI/own':>9}  exact")
    for name in names or MODELS:
        model = MODELS[name]()
        layers = orthosparse.find_layers(model)
        start = time.perf_counter()
        redraw(model)
        own = time.perf_counter() - start
        masks = orthosparse.DISTRIBUTIONS["erk"](model, 0.1, generator=torch.Generator().manual_seed(0))
        start = time.perf_counter()
        orthosparse.SCHEMES["eoi"](model, masks, generator=torch.Generator().manual_seed(0), floor="minimal")
        eoi = time.perf_counter() - start
        start = time.perf_counter()
        report = orthosparse.sparsify(model, 0.1, generator=torch.Generator().manual_seed(0))
        whole = time.perf_counter() - start
        exact = report.got == report.asked
        print(f"{name:26}{len(layers):7}{report.numel:13,}{whole:12.2f}{eoi:8.2f}{own:12.2f}{eoi / own:9.2f}  {exact}")


if __name__ == "__main__":
    main(sys.argv[1:])
