import pytest
import torch
from torch import nn

import orthosparse
from contracts.states import assert_same, state_of
from orthosparse.lab.inspection.head import Head
from orthosparse.lab.inspection.starts import Plan, prepared, starts


def listed(network, plan, seed=1):
    target, inputs = network
    return list(starts(target.model, plan, (inputs.x, inputs.labels), loss=Head().loss, seed=seed))


def test_the_asked_start_comes_first_and_the_sparse_ones_share_the_dense_weights_and_their_counts(network):
    asked, base, dense = listed(network, Plan(density=0.1))
    assert [start.name for start in (dense, base, asked)] == ["dense", "base", "eoi"]
    assert dense.report is None
    masks = orthosparse.masks_of(base.model)
    for name, layer in orthosparse.find_layers(base.model).items():
        weight = orthosparse.find_layers(dense.model)[name].weight()
        assert torch.equal(layer.weight(), weight * masks[name])
    assert base.report.got == asked.report.got == round(0.1 * base.report.numel)


def test_base_is_listed_once_where_it_is_asked_for(network):
    assert [start.name for start in listed(network, Plan(scheme="base"))] == ["base", "dense"]


def test_options_of_the_asked_scheme_do_not_reach_base(network):
    assert [start.name for start in listed(network, Plan(scheme="ai", options={"iterations": 5}))][:2] == ["ai", "base"]
    with pytest.raises(ValueError, match="options: expected one that the distribution or the scheme takes; got 'taps'"):
        listed(network, Plan(options={"taps": 1}))


@pytest.mark.parametrize("name", ["density", "gain", "exclude"])
def test_an_option_that_the_plan_has_itself_is_refused(name):
    with pytest.raises(ValueError, match=f"options: expected those of the distribution or the scheme; got {name!r}"):
        Plan(options={name: 3})


def test_the_model_that_was_given_stays_as_it_was(network):
    target, _ = network
    before = state_of(target.model)
    listed(network, Plan())
    assert_same(before, target.model.state_dict())


@pytest.fixture
def normed(generator):
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(4, 3, 3))


def test_a_calibrated_batch_norm_gives_its_inputs_mean_0_and_variance_1(normed, generator):
    images = 5 + 3 * torch.randn(16, 2, 8, 8, generator=generator)
    model = prepared(normed, "calibrated", images)
    seen = model[1](model[0](images))
    torch.testing.assert_close(seen.mean((0, 2, 3)), torch.zeros(4), atol=1e-4, rtol=0)
    # Running variances have the divisor n - 1.
    torch.testing.assert_close(seen.var((0, 2, 3), correction=0), torch.ones(4), atol=1e-2, rtol=0)
    assert not any(module.training for module in model.modules())
    assert model[1].momentum == 0.1


@pytest.mark.parametrize(("mode", "training"), [("eval", False), ("train", True)])
def test_the_other_modes_leave_the_statistics_alone(normed, generator, mode, training):
    model = prepared(normed, mode, torch.randn(4, 2, 8, 8, generator=generator))
    assert model.training is training
    assert torch.equal(model[1].running_var, torch.ones(4))


def test_an_unknown_mode_is_refused(normed):
    with pytest.raises(ValueError, match="mode: expected one of calibrated, eval, train; got 'test'"):
        prepared(normed, "test", torch.ones(2, 2, 8, 8))
