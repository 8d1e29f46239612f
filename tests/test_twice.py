import pytest
import torch
from torch import nn
from torch.nn import functional

from orthosparse import isometry
from orthosparse.distributions.grasp import grasp
from orthosparse.twice import twice_differentiable

X = torch.linspace(-5, 5, 41, dtype=torch.float64)


@pytest.mark.parametrize("activation", [nn.Hardsigmoid(), nn.Hardsigmoid(inplace=True), torch._C._nn.hardsigmoid])
def test_values_and_slopes_stay_what_they_are(activation):
    def value_and_slope():
        x = X.clone().requires_grad_()
        y = activation(x * 1)
        return y.detach(), torch.autograd.grad(y.sum(), x)[0]

    expected = value_and_slope()
    with twice_differentiable():
        torch.testing.assert_close(value_and_slope(), expected)


def test_a_hard_sigmoid_can_be_differentiated_twice_in_the_block_alone():
    def bent():
        x = X.clone().requires_grad_()
        (slope,) = torch.autograd.grad(functional.hardsigmoid(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.sum(), x)[0]

    with pytest.raises(RuntimeError, match="hardsigmoid_backward"):
        bent()
    with twice_differentiable():
        inner = X.abs() < 3
        torch.testing.assert_close(bent()[inner], torch.full_like(X, 2 / 36)[inner])


@pytest.fixture
def gated(generator):
    return nn.Sequential(nn.Linear(6, 8), nn.Hardsigmoid(), nn.Linear(8, 5))


def test_models_with_hard_sigmoids_are_measured_and_scored(gated, generator):
    x, y = torch.randn(3, 6, generator=generator), torch.randint(5, (3,), generator=generator)
    exact = isometry.singular_values(gated, x, method="exact")
    free = isometry.singular_values(gated, x, method="matrix_free", k=5, generator=generator)
    torch.testing.assert_close(free.values, exact.values, rtol=1e-4, atol=1e-6)
    assert isometry.gradient_flow(gated, None, (x, y)).curvature != 0
    assert sum(int(mask.sum()) for mask in grasp(gated, 0.5, batch=(x, y)).values()) == 44
