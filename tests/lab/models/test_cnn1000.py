import torch
from torch import nn

from orthosparse.lab.models import build
from orthosparse.lab.models.cnn1000 import cnn1000


def test_a_thousand_layers_are_997_convolutions_and_a_linear_one():
    with torch.device("meta"):
        model = cnn1000(classes=10, in_shape=(3, 32, 32))
    convolutions = [module for module in model if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 997
    assert [conv.stride for conv in convolutions[:4]] == [(1, 1), (2, 2), (2, 2), (1, 1)]
    assert all(conv.bias is not None and conv.padding_mode == "circular" for conv in convolutions)
    assert model.fc.in_features == 2048
    assert [type(module) for module in model][-3:] == [nn.AvgPool2d, nn.Flatten, nn.Linear]


def test_a_cyclic_shift_of_the_image_shifts_the_features(generator):
    # Zero padding would break this; two strides of 2 turn four pixels into one.
    model = build("cnn1000", classes=10, in_shape=(3, 16, 16), depth=10, width=6, generator=generator)
    features = model[: list(dict(model.named_children())).index("pool")]
    x = torch.randn(2, 3, 16, 16, generator=generator)
    shifted = features(x.roll((4, 8), (2, 3)))
    torch.testing.assert_close(shifted, features(x).roll((1, 2), (2, 3)))


def test_images_of_odd_sides_fit(generator):
    model = build("cnn1000", classes=10, in_shape=(1, 28, 30), depth=8, width=4, generator=generator)
    assert model.fc.in_features == 4 * 3 * 4
