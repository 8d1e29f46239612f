"""Time of sparsify on whole models of timm and Hugging Face, beside the time their own initialisation takes.

python benchmarks/models.py [NAME ...]
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

import orthosparse


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
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
        elif type(module).__name__ == "Conv1D":
            nn.init.normal_(module.weight, std=0.02)


def seconds(work: Callable[[], object], clock: Callable[[], float], rounds: int = 3) -> float:
    """The shortest of some rounds."""
    times = []
    for _ in range(rounds):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def main(names: list[str]) -> None:
    """Initialisations in processor time on one thread; the whole call in wall time on all threads."""
    threads = torch.get_num_threads()
    print(
        f"{'model':26}{'layers':>7}{'weights':>13}{'EOI s':>8}{'own init s':>12}{'ratio':>7}{'sparsify s':>12}  exact"
    )
    for name in names or MODELS:
        model = MODELS[name]()
        layers = orthosparse.find_layers(model)
        masks = orthosparse.DISTRIBUTIONS["erk"](model, 0.1, layers=layers, generator=torch.Generator().manual_seed(0))
        fill = partial(orthosparse.SCHEMES["eoi"], model, masks, layers=layers, floor="minimal")
        torch.set_num_threads(1)
        own = seconds(partial(redraw, model), time.process_time)
        eoi = seconds(lambda: fill(generator=torch.Generator().manual_seed(0)), time.process_time)  # noqa: B023
        torch.set_num_threads(threads)
        start = time.perf_counter()
        report = orthosparse.sparsify(model, 0.1, generator=torch.Generator().manual_seed(0))
        whole = time.perf_counter() - start
        exact = report.got == report.asked
        print(f"{name:26}{len(layers):7}{report.numel:13,}{eoi:8.3f}{own:12.3f}{eoi / own:7.2f}{whole:12.2f}  {exact}")


if __name__ == "__main__":
    main(sys.argv[1:])
