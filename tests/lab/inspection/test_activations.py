import pytest
from torch import nn

from orthosparse.lab.inspection.activations import advise


def test_the_commonest_activation_is_the_one_that_is_told():
    model = nn.Sequential(
        nn.ReLU(), nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.Tanh(), nn.Softmax(1), nn.Softmax(1)
    )
    advice = advise(model)
    assert advice.activation == "Tanh"
    assert advice.point.sigma_w == pytest.approx(1.0247, abs=1e-4)
    assert "can give dynamical isometry" in advice.text


def test_relu_is_said_to_have_no_isometry():
    advice = advise(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert "no dynamical isometry" in advice.text
    assert not advice.point.isometry


def test_a_model_without_activation_modules_is_said_to_have_none():
    assert advise(nn.Linear(2, 2)).text == "No activation module found: functional ones cannot be seen."
    assert advise(nn.Sequential(nn.PReLU(), nn.GLU())).point is None
