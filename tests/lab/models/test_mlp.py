import torch
from torch import nn

from orthosparse.lab.models import build


def test_the_perceptron_has_biases_and_no_activation_after_its_last_layer(generator):
    model = build("mlp", classes=10, in_shape=(1, 28, 28), generator=generator)
    layers = [module for module in model if isinstance(module, nn.Linear)]
    assert [layer.in_features for layer in layers] == [784, 100, 100, 100, 100, 100, 100]
    assert [layer.out_features for layer in layers] == [100, 100, 100, 100, 100, 100, 10]
    assert all(layer.bias is not None for layer in layers)
    assert isinstance(model[-1], nn.Linear)


def test_a_thousand_layers_hold_998_square_ones():
    with torch.device("meta"):
        from orthosparse.lab.models.mlp import mlp1000

        model = mlp1000(classes=10, in_shape=(1, 28, 28))
    layers = [module for module in model if isinstance(module, nn.Linear)]
    assert len(layers) == 1000
    assert sum(layer.in_features == layer.out_features == 128 for layer in layers) == 998


def test_the_output_is_that_of_the_formula(generator):
    model = build("mlp", classes=3, in_shape=(1, 2, 2), activation="tanh", depth=3, width=5, generator=generator)
    x = torch.randn(4, 1, 2, 2, generator=generator)
    state, hidden = model.state_dict(), x.reshape(4, 4)
    for index in (1, 2):
        hidden = torch.tanh(hidden @ state[f"fc{index}.weight"].T + state[f"fc{index}.bias"])
    torch.testing.assert_close(model(x), hidden @ state["fc3.weight"].T + state["fc3.bias"])
