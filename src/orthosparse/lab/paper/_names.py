"""What the paper's methods, starts, networks and data are called where people read them, and its usual grids."""

from orthosparse.lab.paper._rendered import Column, Line

SEEDS = (1, 2, 3, 4, 5)
METHODS = {"erk": "ERK", "grasp": "GraSP", "snip": "SNIP", "synflow": "SynFlow", "uniform": "Uniform"}
INITS = {"base": "Base", "ai": "AI", "eoi": "EOI"}
ACTIVATIONS = {
    "linear": "linear",
    "tanh": "tanh",
    "hardtanh": "hard tanh",
    "relu": "ReLU",
    "leaky_relu": "LReLU",
    "selu": "SELU",
}
MODELS = {
    "mlp": "MLP",
    "mlp1000": "1000-layer MLP",
    "cnn1000": "1000-layer CNN",
    "resnet32": "ResNet32",
    "resnet56": "ResNet56",
    "resnet110": "ResNet110",
    "vgg16c": "VGG-16",
    "efficientnet_b0": "EfficientNet",
    "resnet50": "ResNet50",
    "deit3_small": "DeiT III small",
}
DATA = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tiny_imagenet": "Tiny ImageNet",
    "imagenet": "ImageNet",
    "digits": "digits",
}
# The networks of the contemporary study and their images, in the paper's order.
CONTEMPORARY = (
    ("resnet32", "cifar10"),
    ("resnet56", "cifar10"),
    ("resnet110", "cifar10"),
    ("vgg16c", "cifar10"),
    ("efficientnet_b0", "tiny_imagenet"),
    ("resnet110", "cifar100"),
)


def column(model: str, data: str) -> Column:
    """Return the column of a network and its images.

    Example:
        >>> column("resnet32", "cifar10")
        Column(key='resnet32/cifar10', label='ResNet32 (CIFAR-10)', model='ResNet32', digits=None)
    """
    return Column(f"{model}/{data}", f"{MODELS[model]} ({DATA[data]})", MODELS[model])


def both(method: str, init: str) -> str:
    """Return the tag of what belongs to a method and to a start: it is found by either.

    Example:
        >>> both("ERK", "eoi")
        'ERK|EOI'
    """
    return f"{method}|{INITS[init]}"


def lines(methods: dict[str, str] = METHODS, inits: dict[str, str] = INITS) -> list[Line]:
    """Return a block for each method, a line for each start."""
    return [
        Line(f"{method}/{init}", (label, start), block=method, method=both(label, init))
        for method, label in methods.items()
        for init, start in inits.items()
    ]


DENSE = [
    Line("dense/base", ("Dense", "Base"), block="dense", method="Dense", ranked=False),
    Line("dense/orthogonal", ("Dense", "Orthogonal"), block="dense", method="Dense", ranked=False),
]
