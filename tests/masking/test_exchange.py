"""Masks of modules that hold only active weights: read, replaced, seen as masked layers."""

import copy

import pytest
import torch
from torch.nn import functional

from compacting.models import batch_for, masked_net
from contracts.states import assert_same
from orthosparse import BlockLinear, Rewirer, compact, isometry, masks_of, replace_masks, sparsify
from orthosparse.masking import is_sparsified
from orthosparse.masking.exchange import masked_forms


@pytest.fixture(params=[None, 16], ids=["entries", "blocks"])
def pair(request, generator):
    masked = masked_net(generator, block=request.param)
    twin = copy.deepcopy(masked)
    compact(twin)
    return masked, twin


def test_replaced_masks_leave_the_same_model_and_optimizer(pair, generator):
    optimizers = [torch.optim.Adagrad(model.parameters(), initial_accumulator_value=0.5) for model in pair]
    data = [batch_for(pair[0], generator) for _ in range(3)]
    new = {name: mask.roll(16, 0) for name, mask in masks_of(pair[0]).items()}
    for model, optimizer in zip(pair, optimizers, strict=True):
        for index, (x, y) in enumerate(data):
            functional.cross_entropy(model.eval()(x), y).backward()
            optimizer.step()
            if index == 1:
                replace_masks(model, new, optimizer=optimizer)
            optimizer.zero_grad()
    torch.testing.assert_close(pair[0](data[0][0]), pair[1](data[0][0]), rtol=1e-10, atol=1e-10)
    assert_same(masks_of(pair[1]), new)


def test_masks_that_do_not_fit_are_refused_and_nothing_changed(pair):
    _, model = pair
    before = masks_of(model)
    fewer = before["fc"].clone()
    fewer[before["fc"]] = False
    cases = [(fewer, ValueError), (before["fc"].float(), TypeError), (before["fc"][:1], ValueError)]
    for mask, error in cases:
        with pytest.raises(error, match=r"masks: .*fc"):
            replace_masks(model, {"stem": before["stem"].roll(1, 0), "fc": mask})
    assert_same(before, masks_of(model))


def test_parts_of_blocks_cannot_be_active(generator):
    model = masked_net(generator, block=16)
    compact(model)
    assert isinstance(model.fc, BlockLinear)
    mask = masks_of(model)["fc"].roll(1, 0)
    with pytest.raises(ValueError, match="whole blocks of 16"):
        replace_masks(model, {"fc": mask})


def test_a_compact_model_counts_as_sparsified(pair):
    assert is_sparsified(pair[1])
    with pytest.raises(ValueError, match="sparsified already"):
        sparsify(pair[1], 0.5)


def test_isometry_measures_the_same_and_leaves_the_model_as_it_was(pair, generator):
    masked, twin = (model.eval() for model in pair)
    x, y = batch_for(masked, generator)
    modules = list(twin.modules())
    values = [isometry.singular_values(model, x[:2]).values for model in (masked, twin)]
    torch.testing.assert_close(*values, rtol=1e-8, atol=1e-10)
    assert isometry.effective_density(masked, x).total == isometry.effective_density(twin, x).total
    norms = [isometry.gradient_flow(model, None, (x, y)).norm for model in (masked, twin)]
    assert norms[0] == pytest.approx(norms[1])
    assert [id(module) for module in twin.modules()] == [id(module) for module in modules]


def test_a_single_compact_layer_can_be_measured(generator):
    layer = BlockLinear(32, 16, 2, 16)
    with torch.no_grad():
        layer.values.copy_(torch.eye(16).expand(2, 16, 16))
    values = isometry.singular_values(layer, torch.randn(1, 32, generator=generator)).values
    torch.testing.assert_close(values, torch.full_like(values, 2**0.5))


def test_masked_forms_are_gone_after_an_error(pair):
    _, twin = pair
    kinds = [type(module) for module in twin.modules()]
    with pytest.raises(RuntimeError), masked_forms(twin):
        assert [type(module) for module in twin.modules()] != kinds
        raise RuntimeError
    assert [type(module) for module in twin.modules()] == kinds


@pytest.mark.parametrize("grow", ["gradient", "random", "momentum"])
@pytest.mark.parametrize("block", [None, 16])
def test_the_rewirer_moves_units_as_in_the_masked_model(grow, block, generator):
    masked = masked_net(generator, block=block)
    twin = copy.deepcopy(masked)
    compact(twin)
    data = [batch_for(masked, generator) for _ in range(8)]
    for model in (masked, twin):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        rewirer = Rewirer(model, optimizer, grow=grow, every=2, steps=20, generator=torch.Generator().manual_seed(3))
        for x, y in data:
            functional.cross_entropy(model.eval()(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            rewirer.step()
        assert rewirer.updates == 4
        assert sum(rewirer.moved.values()) > 0
    masks, others = masks_of(masked), masks_of(twin)
    assert_same(others, masks)
    torch.testing.assert_close(masked(data[0][0]), twin(data[0][0]), rtol=1e-9, atol=1e-9)


def test_the_rewirer_moves_whole_blocks_to_the_largest_gradients(generator):
    model = torch.nn.Sequential(BlockLinear(64, 64, 4, 16, bias=False, dtype=torch.float64))
    layer = model[0]
    with torch.no_grad():
        layer.values.copy_(torch.randn(4, 16, 16, generator=generator) * torch.arange(1, 5).view(4, 1, 1))
    before = layer.active
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    rewirer = Rewirer(model, optimizer, every=1, fraction=0.5, steps=1000)
    x, target = (torch.randn(9, 64, generator=generator, dtype=torch.float64) for _ in range(2))
    weight = layer.weight.detach().requires_grad_()
    (x @ weight.T - target).square().sum().backward()
    norms = weight.grad.view(4, 16, 4, 16).transpose(1, 2).flatten(2).norm(dim=2)
    (model(x) - target).square().sum().backward()
    rewirer.step()
    after = layer.active
    assert int(after.sum()) == 4
    assert rewirer.moved == {"0": 2 * 16 * 16}
    kept = before.flatten().nonzero()[2:, 0]  # the two of largest norm
    free = torch.ones(16, dtype=torch.bool).index_fill_(0, kept, False)
    grown = norms.flatten().masked_fill(~free, -1).topk(2).indices
    assert set(after.flatten().nonzero()[:, 0].tolist()) == {*kept.tolist(), *grown.tolist()}


def test_a_compiled_compact_model_is_rewired(generator):
    model = masked_net(generator)
    compact(model)
    compiled = torch.compile(model.eval(), backend="aot_eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rewirer = Rewirer(compiled, optimizer, every=2, steps=20)
    counts = {name: int(mask.sum()) for name, mask in masks_of(model).items()}
    for _ in range(5):
        x, y = batch_for(model, generator)
        functional.cross_entropy(compiled(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        rewirer.step()
    assert rewirer.updates == 2
    assert {name: int(mask.sum()) for name, mask in masks_of(model).items()} == counts
    torch.testing.assert_close(compiled(x), model(x))
