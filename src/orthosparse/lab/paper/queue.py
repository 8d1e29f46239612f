"""What is to be measured next, in the order of evidence per minute of a GPU."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """Experiments of an item that are measured together.

    Attributes:
        only: filters of the item's experiments, as `paper run --only` takes them.
        precision: of every training; None is the experiment's own.
        together: networks of the same shape in one stack at most; None trains each alone.
    """

    title: str
    item: str
    only: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (1,)
    precision: str | None = "bf16"
    together: int | None = 40


_ERK_CNN = ("model=cnn1000", "distribution=erk", "distribution=none", "scheme=ai", "scheme=eoi", "scheme=none")
_OTHER_CNN = ("model=cnn1000", "distribution=uniform", "distribution=dense_ends")
_ERK_EOI = ("distribution=erk", "scheme=eoi", "data=cifar10")

# VGG-16 trains alone: in a stack a step takes longer for each network (`results/benchmarks/stack_speed.jsonl`).
QUEUE = (
    Entry("ResNet32, density 5 %", "contemporary_5", ("model=resnet32",)),
    Entry("1000-layer CNN, 100 epochs", "deep_networks", _ERK_CNN, precision=None, together=3),
    Entry("ResNet56, density 10 %", "contemporary", ("model=resnet56",)),
    Entry("ResNet56, density 5 %", "contemporary_5", ("model=resnet56",)),
    Entry("ResNet56 by density", "density_sweep"),
    Entry("ResNet56, static and dynamic", "dynamic", ("model=resnet56",)),
    Entry("ResNet32 by activation", "activations", ("model=resnet32",)),
    Entry("VGG-16, density 10 %", "contemporary", ("model=vgg16c",), together=None),
    Entry("ResNet110, density 10 %", "contemporary", ("model=resnet110", "data=cifar10")),
    Entry("ResNet32, density 10 %, two more seeds", "contemporary", ("model=resnet32",), seeds=(2, 3)),
    Entry("ERK EOI in TF32, a check of bf16", "contemporary", _ERK_EOI, precision=None, together=None),
    Entry("VGG-16, density 5 %", "contemporary_5", ("model=vgg16c",), together=None),
    Entry("ResNet110, density 5 %", "contemporary_5", ("model=resnet110",)),
    Entry("1000-layer CNN, uniform and SAO's densities", "deep_networks", _OTHER_CNN, precision=None, together=3),
    Entry("VGG-16 by activation", "activations", ("model=vgg16c",), together=None),
    Entry("EOI at random taps, 200 epochs", "aligned_200", precision=None),
    Entry("EfficientNet by rule for depthwise layers", "depthwise", seeds=(1, 2, 3), precision=None, together=None),
    Entry("ViT from strided and from tiled patches", "strides", seeds=(1, 2, 3), precision=None, together=None),
    Entry("EfficientNet, a stand-in", "efficientnet", precision=None, together=None),
)
