import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from contracts.defaults import other_defaults
from contracts.models import MODELS, Recomputed
from contracts.states import assert_same, state_of
from orthosparse.isometry import gradient_flow
from orthosparse.masking import attach
from orthosparse.randomness import draw_seed


def filled(model, generator):
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64) + 0.2)
    return model


def model_and_batch():
    g = torch.Generator().manual_seed(0)
    model = filled(nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3)), g)
    return model, (torch.randn(8, 5, generator=g, dtype=torch.float64), torch.randint(3, (8,), generator=g))


def gradients(model, loss, batch):
    """By plain backward; dropout draws from the seed that generator 3 gives."""
    model = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw_seed(torch.Generator().manual_seed(3)))
        loss(model(batch[0]), batch[1]).backward()
    return model, {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("training", [False, True])
def test_norms_are_those_of_backward_before_and_after_a_step(training):
    model, batch = model_and_batch()
    model.train(training)
    flow = gradient_flow(model, None, batch, step_size=0.1, generator=torch.Generator().manual_seed(3))
    stepped, before = gradients(model, functional.cross_entropy, batch)
    assert flow.norms == pytest.approx({"0": float(before["0.weight"].norm()), "4": float(before["4.weight"].norm())})
    assert flow.norm == pytest.approx(math.sqrt(sum(float(g.square().sum()) for g in before.values())))
    with torch.no_grad():
        for name, parameter in stepped.named_parameters():
            parameter.sub_(0.1 * before[name])
    stepped.load_state_dict({k: v for k, v in model.state_dict().items() if "running" in k}, strict=False)
    stepped.zero_grad()
    _, after = gradients(stepped, functional.cross_entropy, batch)
    assert flow.norms_after == pytest.approx(
        {"0": float(after["0.weight"].norm()), "4": float(after["4.weight"].norm())}
    )
    assert flow.norm_after == pytest.approx(math.sqrt(sum(float(g.square().sum()) for g in after.values())))


def test_curvature_is_the_explicit_hessian_between_gradients():
    """A loss of 8 weights, its 8 x 8 Hessian, g^T H g."""
    g = torch.Generator().manual_seed(0)
    model = filled(nn.Sequential(nn.Linear(3, 2, bias=False), nn.Tanh(), nn.Linear(2, 1, bias=False)), g)
    x, y = torch.randn(4, 3, generator=g, dtype=torch.float64), torch.randn(4, 1, generator=g, dtype=torch.float64)

    def loss_of(flat):
        first, second = flat[:6].view(2, 3), flat[6:].view(1, 2)
        return ((x @ first.T).tanh() @ second.T - y).square().mean()

    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    hessian = torch.autograd.functional.hessian(loss_of, flat)
    gradient = torch.autograd.functional.jacobian(loss_of, flat)
    flow = gradient_flow(model, functional.mse_loss, (x, y), step_size=1e-5)
    assert flow.curvature == pytest.approx(float(gradient @ hessian @ gradient))
    assert flow.loss == pytest.approx(float(loss_of(flat)))
    # The quantity of GraSP: how fast the squared norm falls along the gradient.
    assert (flow.norm**2 - flow.norm_after**2) / 2e-5 == pytest.approx(flow.curvature, rel=1e-3)


def test_masked_weights_have_no_gradient():
    model, batch = model_and_batch()
    mask = torch.zeros(6, 5, dtype=torch.bool)
    mask[0] = True
    attach(model, {"0": mask})
    model.eval()
    _, grads = gradients(model, functional.cross_entropy, batch)
    full = grads["0._checkpoint_wrapped_module.weight"]
    assert not full[1:].any()
    assert gradient_flow(model, None, batch).norms["0"] == pytest.approx(float(full[0].norm()))


def test_the_model_is_left_as_it_was():
    model, batch = model_and_batch()
    before = state_of(model)
    state = torch.get_rng_state()
    first, second = (gradient_flow(model, None, batch, generator=torch.Generator().manual_seed(0)) for _ in range(2))
    assert first == second
    assert_same(before, model.state_dict())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


class Shift(nn.Module):
    """Adds one, in place."""

    def forward(self, x):
        return x.add_(1)


def test_both_losses_are_those_of_the_batch_though_the_model_changes_it_in_place():
    layer, x, y = nn.Linear(3, 2), torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.arange(4) % 2
    flow = gradient_flow(nn.Sequential(Shift(), layer), None, (given := x.clone(), y), step_size=0.5)
    assert torch.equal(given, x)
    expected = gradient_flow(nn.Sequential(nn.Identity(), layer), None, (x + 1, y), step_size=0.5)
    assert (flow.loss, flow.norm_after) == (expected.loss, expected.norm_after)


def test_frozen_layers_and_keyword_inputs():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)
            self.first.requires_grad_(False)

        def forward(self, *, features):
            return self.second(self.first(features))

    flow = gradient_flow(Model(), None, ({"features": torch.ones(2, 3)}, torch.tensor([0, 1])))
    assert list(flow.norms) == ["second"]
    with pytest.raises(ValueError, match="all are frozen"):
        gradient_flow(Model().requires_grad_(False), None, ({"features": torch.ones(2, 3)}, torch.tensor([0, 1])))


def test_layers_that_are_computed_again_in_the_backward_pass_have_the_same_gradients():
    inner = MODELS["tanh_mlp"].make()
    batch = MODELS["tanh_mlp"].batch()
    expected = gradient_flow(inner, None, batch, step_size=1.0)
    flow = gradient_flow(Recomputed(inner), None, batch, step_size=1.0)
    assert flow.norm_after == pytest.approx(expected.norm_after, rel=1e-5)
    assert flow.curvature == pytest.approx(expected.curvature, rel=1e-4)


def test_a_linear_loss_has_no_curvature():
    flow = gradient_flow(nn.Linear(3, 1), lambda out, y: out.sum(), (torch.ones(2, 3), None))
    assert flow.curvature == 0
    assert flow.norm_after == flow.norm == pytest.approx(4.0)


def test_a_default_device_and_dtype_do_not_matter():
    model, batch = MODELS["batch_norm"].make().eval(), MODELS["batch_norm"].batch()
    expected = gradient_flow(model, None, batch)
    with other_defaults():
        assert gradient_flow(model, None, batch) == expected


def test_bad_input_is_named():
    with pytest.raises(TypeError, match="batch: expected a pair"):
        gradient_flow(nn.Linear(3, 1), None, torch.ones(2, 3))
    with pytest.raises(ValueError, match="at least one sample"):
        gradient_flow(nn.Linear(3, 1), None, (torch.ones(0, 3), torch.ones(0)))
    with pytest.raises(ValueError, match="loss: expected"):
        gradient_flow(nn.Linear(3, 1), lambda out, y: out, (torch.ones(2, 3), None))
    with pytest.raises(TypeError, match=r"loss: expected a function of \(output, y\), or None; got int"):
        gradient_flow(nn.Linear(3, 1), 3, (torch.ones(2, 3), None))
    with pytest.raises(TypeError, match=r"step_size: expected a finite number; got 'a' \(str\)"):
        gradient_flow(nn.Linear(3, 1), None, (torch.ones(2, 3), None), step_size="a")
    with pytest.raises(ValueError, match="step_size: expected a finite number; got nan"):
        gradient_flow(nn.Linear(3, 1), None, (torch.ones(2, 3), None), step_size=math.nan)
