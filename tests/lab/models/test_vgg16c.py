import torch
from torch import nn

from orthosparse.lab.models import build


def test_one_by_one_convolutions_grow_the_map(generator):
    model = build("vgg16c", classes=10, in_shape=(3, 32, 32), generator=generator).eval()
    sides = []
    for module in model.features:
        if isinstance(module, nn.Conv2d | nn.MaxPool2d):
            module.register_forward_hook(lambda module, args, out: sides.append(out.shape[-1]))
    model(torch.zeros(1, 3, 32, 32))
    assert sides == [32, 32, 16, 16, 16, 8, 8, 8, 10, 5, 5, 5, 7, 3, 3, 3, 5, 2]
    assert model.classifier.fc1.in_features == 2048


def test_every_convolution_has_a_bias_and_there_is_no_dropout(generator):
    model = build("vgg16c", classes=10, in_shape=(3, 32, 32), generator=generator)
    assert all(module.bias is not None for module in model.features if isinstance(module, nn.Conv2d))
    assert not any(isinstance(module, nn.Dropout) for module in model.modules())
    kinds = [type(module).__name__ for module in model.classifier]
    assert kinds == ["Linear", "ReLU", "BatchNorm1d", "Linear", "ReLU", "BatchNorm1d", "Linear"]


def test_the_classifier_follows_the_size_of_the_images(generator):
    model = build("vgg16c", classes=10, in_shape=(1, 28, 28), generator=generator)
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
