import copy

import pytest
import torch
from torch import nn

import orthosparse
from contracts.models import MODELS
from contracts.states import assert_same, state_of
from orthosparse.counts import count_of


def flat(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors])


def weights(model):
    return [layer.weight() for layer in orthosparse.find_layers(model).values()]


def test_the_largest_weights_keep_their_values_and_all_else_stays():
    model = MODELS["cnn"].make()
    before, dense = state_of(model), flat(weights(model)).clone()
    report = orthosparse.prune(model, 0.3)
    kept = flat(weights(model))
    count = count_of(0.3, dense.numel())
    assert report.got == report.asked == count == int(kept.count_nonzero())
    largest = dense.abs().argsort(descending=True)[:count]
    assert torch.equal(kept[largest], dense[largest])
    after, layers = state_of(model), orthosparse.find_layers(model)
    touched = {f"{layer.module_name}.{layer.tensor}" for layer in layers.values()}
    assert all(torch.equal(value, after[name]) for name, value in before.items() if name not in touched)
    assert report.scheme == "values kept"
    assert report.gain is None
    assert "gain" not in str(report)


@pytest.mark.parametrize("distribution", ["magnitude", "snip", "grasp", "synflow", "snip_iterative"])
def test_masks_at_falling_densities_are_nested_and_their_counts_exact(distribution):
    name = "relu_mlp" if "relu_mlp" in MODELS else "mlp"
    model = MODELS[name].make()
    if distribution == "synflow":
        model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 5))
    batch = MODELS["mlp"].batch()
    numel = flat(weights(model)).numel()
    old = None
    for density in (0.6, 0.3, 0.1, 0.1):
        values = flat(weights(model)).clone()
        report = orthosparse.prune(model, density, distribution=distribution, batch=batch)
        masks = orthosparse.masks_of(model)
        assert report.got == count_of(density, numel) == sum(int(mask.sum()) for mask in masks.values())
        assert old is None or all(bool((masks[layer] <= old[layer]).all()) for layer in masks)
        active = flat(masks.values())
        assert torch.equal(flat(weights(model))[active], values[active])
        old = masks


def test_grasp_prefers_active_weights_of_negative_score_to_inactive_ones():
    """theta * H g of an inactive weight is 0, above that of many active ones."""
    model, batch = MODELS["mlp"].make(), MODELS["mlp"].batch()
    orthosparse.prune(model, 0.5)
    before = orthosparse.masks_of(model)
    report = orthosparse.prune(model, 0.5, distribution="grasp", batch=batch)
    after = orthosparse.masks_of(model)
    assert_same(before, after)
    assert report.got == sum(int(mask.sum()) for mask in before.values())


def test_weights_of_zero_that_are_active_do_not_give_way_to_inactive_ones():
    model = nn.Linear(4, 4, bias=False)
    nn.init.eye_(model.weight)
    orthosparse.prune(model, 0.5)
    first = orthosparse.masks_of(model)["weight"]
    orthosparse.prune(model, 6 / 16)
    second = orthosparse.masks_of(model)["weight"]
    assert int(second.sum()) == 6
    assert bool((second <= first).all())


def test_a_sparsified_model_is_pruned_inside_its_masks():
    model = MODELS["mlp"].make()
    orthosparse.sparsify(model, 0.5, generator=torch.Generator().manual_seed(0))
    old = orthosparse.masks_of(model)
    orthosparse.prune(model, 0.2)
    assert all(bool((mask <= old[name]).all()) for name, mask in orthosparse.masks_of(model).items())


def test_rewinding_goes_back_to_earlier_values_on_the_new_masks():
    model, (x, y) = MODELS["mlp"].make(), MODELS["mlp"].batch()
    start = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for density in (0.6, 0.3):
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        trained = {name: layer.weight().clone() for name, layer in orthosparse.find_layers(model).items()}
        report = orthosparse.prune(model, density, rewind=start, optimizer=optimizer)
        masks = orthosparse.masks_of(model)
        largest = flat(trained.values()).abs().argsort(descending=True)[: report.got]
        assert bool(flat(masks.values())[largest].all())  # chosen by the trained weights
        after = model.state_dict()
        for key, value in start.items():
            mask = after.get(f"{key}_mask", torch.ones_like(value, dtype=torch.bool))
            assert torch.equal(after[key], value * mask)
    again = MODELS["mlp"].make()
    orthosparse.load_sparse(again, model.state_dict())
    assert_same(state_of(model), state_of(again))


def test_a_state_dict_to_rewind_to_may_be_that_of_the_wrapped_model():
    wrapped, plain = (nn.DataParallel(MODELS["mlp"].make()) for _ in range(2))
    start = {name: value + 1 for name, value in wrapped.state_dict().items()}
    orthosparse.prune(wrapped, 0.3, rewind=start)
    orthosparse.prune(plain.module, 0.3, rewind={name.removeprefix("module."): value for name, value in start.items()})
    assert_same(plain.state_dict(), wrapped.state_dict())


@pytest.mark.parametrize("masked", [False, True])
def test_buffers_of_the_model_that_are_called_like_masks_are_rewound_too(masked):
    model = nn.Sequential(nn.Linear(8, 8))
    model[0].register_buffer("bias_mask", torch.ones(8))
    if masked:
        orthosparse.prune(model, 0.6)
    start = copy.deepcopy(model.state_dict())
    model[0].bias_mask.zero_()
    orthosparse.prune(model, 0.3, rewind=start)
    assert torch.equal(model[0].bias_mask, torch.ones(8))


def test_masks_in_a_state_dict_to_rewind_to_are_not_looked_at():
    model = MODELS["mlp"].make()
    orthosparse.prune(model, 0.6)
    earlier = copy.deepcopy(model.state_dict())
    assert orthosparse.prune(model, 0.3, rewind=earlier).got == sum(
        int(mask.sum()) for mask in orthosparse.masks_of(model).values()
    )


def test_a_pruned_model_trains_inside_its_masks():
    model, (x, y) = MODELS["mlp"].make(), MODELS["mlp"].batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for density in (0.5, 0.2):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        orthosparse.prune(model, density, optimizer=optimizer)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        layers = orthosparse.find_layers(model)
        for name, mask in orthosparse.masks_of(model).items():
            assert int(layers[name].weight()[~mask].count_nonzero()) == 0


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"density": 1.5}, ValueError, "density: expected a number in"),
        ({"density": 0.7}, ValueError, "density: expected at most 0.5"),
        ({"distribution": "erk"}, ValueError, "distribution: expected one that scores weights; 'erk' draws them"),
        ({"distribution": "size"}, ValueError, "distribution: expected one of"),
        ({"distribution": "snip"}, ValueError, "batch: snip needs data"),
        ({"include": ["0"]}, ValueError, "include: expected none for a model that has masks"),
        ({"exclude": ["0"]}, ValueError, "exclude: expected none for a model that has masks"),
        ({"rewind": {}}, ValueError, "rewind: expected a state dict of this model; '0.bias' has shape None in rewind"),
        ({"rewind": "start.pt"}, TypeError, "rewind: expected a state dict"),
        ({"optimizer": "adam"}, TypeError, "optimizer: expected"),
        ({"colour": "red"}, ValueError, "got 'colour'"),
    ],
    ids=str,
)
def test_bad_input_is_named_and_the_model_is_unchanged(wrong, error, message):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    orthosparse.prune(model, 0.5)
    before = state_of(model)
    with pytest.raises(error, match=message):
        orthosparse.prune(model, **{"density": 0.2, **wrong})
    assert_same(before, state_of(model))


@pytest.mark.parametrize("first", ["prune", "sparsify"])
def test_blocks_stay_whole_blocks_and_those_of_largest_mean_score_are_kept(first):
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
    before = None
    if first == "sparsify":
        orthosparse.sparsify(model, 0.6, structure="block:16", generator=torch.Generator().manual_seed(0))
        before = orthosparse.masks_of(model)
    else:
        report = orthosparse.prune(model, 0.6, structure="block:16")
        assert (report.structure, report.rows[1].note) == ("block:16", "entries: 16 does not divide its sides")
    for density in (0.4, {"0": 0.1, "2": 0.2}):
        old = orthosparse.masks_of(model)
        dense = model[0].weight.detach().clone()
        report = orthosparse.prune(model, density)
        masks = orthosparse.masks_of(model)
        grid = masks["0"].unflatten(0, (4, 16)).unflatten(2, (4, 16)).float().mean((1, 3))
        assert bool(((grid == 0) | (grid == 1)).all())
        assert all(bool((masks[name] <= old[name]).all()) for name in masks)
        means = dense.abs().unflatten(0, (4, 16)).unflatten(2, (4, 16)).mean((1, 3))
        left = old["0"][::16, ::16] & (grid == 0)
        assert not left.any() or means[grid == 1].min() > means[left].max()
    assert {row.layer: row.got for row in report.rows} == {"0": 2 * 256, "2": 64}
    assert before is None or bool((masks["0"] <= before["0"]).all())


def test_the_structure_of_a_model_that_has_masks_is_that_of_its_masks():
    model = nn.Sequential(nn.Linear(32, 32))
    orthosparse.prune(model, 0.5)
    with pytest.raises(ValueError, match="structure: expected none for a model that has masks"):
        orthosparse.prune(model, 0.3, structure="block:16")


def test_half_precision_weights_are_pruned_further():
    model = nn.Sequential(nn.Linear(32, 32)).half()
    orthosparse.prune(model, 0.5, structure="block:16")
    assert orthosparse.prune(model, 0.25).got == 256


def test_a_compact_model_is_to_be_expanded_first():
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
    orthosparse.sparsify(model, 0.4)
    orthosparse.compact(model)
    before = state_of(model)
    with pytest.raises(ValueError, match=r"model: expected no compact layers; got 0, 2: call expand\(model\) first"):
        orthosparse.prune(model, 0.2)
    assert_same(before, state_of(model))
    orthosparse.expand(model)
    assert orthosparse.prune(model, 0.2).got == count_of(0.2, 32 * 32 + 32 * 8)


@pytest.mark.parametrize("first", [None, 0.5])
@pytest.mark.parametrize("rewound", [False, True])
@pytest.mark.parametrize("failing", ["row_of", "left_dense", "masking.attach", "masking.replace_masks"])
def test_what_fails_before_the_report_leaves_the_model_and_the_optimizer_as_they_were(
    failing, rewound, first, monkeypatch
):
    model, (x, y) = MODELS["mlp"].make(), MODELS["mlp"].batch()
    start = copy.deepcopy(model.state_dict())
    if first:
        orthosparse.prune(model, first)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    before, held = state_of(model), copy.deepcopy(optimizer.state_dict())

    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"orthosparse.pruning.{failing}", interrupted)
    try:
        orthosparse.prune(model, 0.3, rewind=start if rewound else None, optimizer=optimizer)
    except KeyboardInterrupt:
        assert_same(before, state_of(model))
        torch.testing.assert_close(optimizer.state_dict(), held, rtol=0, atol=0)
    else:
        assert failing == ("masking.replace_masks" if first is None else "masking.attach")
